// The page. Talks to /v1 of its own server and to nothing else; everything from outside goes in as text, never as markup.
import { picto } from "/static/picto.js";

const PAGE = 24;
const $ = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat();
const pictures = (count) => `${numbers.format(count)} ${count === 1 ? "picture" : "pictures"}`;
const DEPTH = ["in_front_of", "behind"];

// What is on the screen. `shown` is the list that the dialog walks through.
const state = { query: "", view: "spatial", depth: false, main: null, other: null, shown: [], at: -1, opener: null };
let running = null;

class Refused extends Error {
  constructor(status, problem, wait) {
    super(problem.detail || problem.title || "the server did not answer");
    this.status = status;
    this.wait = wait;
  }
}

async function ask(path, body, signal) {
  const options = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "The server cannot be reached." }, null);
  }
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  throw new Refused(response.status, content, Number(response.headers.get("retry-after")) || null);
}

// Asks again while the server says when: it opens the index, or has too much to do.
async function insist(path, body, signal) {
  for (let tries = 0; ; tries++) {
    try {
      return await ask(path, body, signal);
    } catch (error) {
      if (!error.wait || tries > 150 || /could not/.test(error.message)) throw error;
      tell(`${sentence(error.message)} Waiting ...`);
      await new Promise((resolve) => setTimeout(resolve, error.wait * 1000));
      signal?.throwIfAborted();
    }
  }
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1).replace(/[.]?$/, ".") : "");

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function tell(text, failed = false) {
  $("status").textContent = text;
  $("status").classList.toggle("failed", failed);
}

// Searching ------------------------------------------------------------------------------------------------

async function search() {
  running?.abort();
  const { signal } = (running = new AbortController());
  const { query, view, depth } = state;
  document.body.classList.toggle("home", !query);
  document.title = query ? `${query} – Beside` : "Beside";
  if (!query) return clear();
  $("results").classList.add("busy");
  const request = { query, k: PAGE, explain: true, depth };
  try {
    const main = await insist("/v1/search", { ...request, mode: view === "native" ? "native" : "auto" }, signal);
    // A native answer still tells how the query was read, so the badge can be switched on again.
    const split = view === "split" && main.mode === "spatial";
    const other = split ? await insist("/v1/search", { ...request, mode: "native" }, signal) : null;
    Object.assign(state, { main, other });
    show();
  } catch (error) {
    if (error.name === "AbortError") return;
    clear();
    tell(sentence(error.message), true);
  } finally {
    if (!signal.aborted) $("results").classList.remove("busy");
  }
}

async function more() {
  const button = $("more");
  const { signal } = running;
  button.disabled = true;
  try {
    for (const side of ["main", "other"]) {
      const page = state[side];
      if (!page?.next_cursor) continue;
      const mode = side === "other" || state.view === "native" ? "native" : "auto";
      const next = await insist("/v1/search", {
        query: state.query, k: PAGE, explain: true, depth: state.depth, mode, cursor: page.next_cursor,
      }, signal);
      state[side] = { ...next, hits: [...page.hits, ...next.hits], took_ms: page.took_ms };
    }
    show();
  } catch (error) {
    if (error.name !== "AbortError") tell(sentence(error.message), true); // else another search is under way
  } finally {
    button.disabled = false;
  }
}

function clear() {
  Object.assign(state, { main: null, other: null });
  for (const id of ["reading", "other-list", "more"]) $(id).hidden = true;
  $("warnings").replaceChildren();
  for (const wall of document.querySelectorAll(".wall")) wall.replaceChildren();
  $("results").classList.remove("split", "busy");
  tell("");
}

// Showing --------------------------------------------------------------------------------------------------

function show() {
  const { main, other } = state;
  const split = other !== null;
  showReading(main);
  $("warnings").replaceChildren(...main.warnings.map((text) => make("li", { textContent: text })));
  $("results").classList.toggle("split", split);
  $("other-list").hidden = !split;
  title($("main-title"), split ? "Spatial" : "Pictures", "words and places");
  $("main-title").classList.toggle("hidden", !split);
  title($("other-title"), "Native", "words alone");
  const places = new Map(main.hits.map((hit) => [hit.id, hit.rank]));
  lay($("main-list"), main.hits, (hit) => (main.mode === "spatial" ? move(hit.native_rank, hit.rank, "native") : null));
  lay($("other-list"), other?.hits ?? [], (hit) => {
    const rank = places.get(hit.id);
    return rank ? move(hit.rank, rank, "here") : { text: `↓ past ${main.hits.length}`, kind: "" };
  });
  $("more").hidden = !main.next_cursor;
  const how = main.mode === "spatial" ? "words and places" : "words alone";
  tell(
    main.hits.length
      ? `${pictures(main.total)}, ${how}, ${Math.max(1, Math.round(main.took_ms.total))} ms`
      : "No picture.",
  );
}

function showReading({ parsed, relations, mode }) {
  const read = mode === "spatial" ? relations : parsed.relations;
  const off = state.view === "native";
  $("reading").hidden = false;
  $("switch").hidden = !read.length || (!off && mode === "native");
  $("views").hidden = $("switch").hidden;
  $("unread").hidden = !$("switch").hidden;
  $("unread").textContent = read.length
    ? "What was read of places does not rank, so words alone decide."
    : "No place was named, so words alone decide.";
  const unscored = parsed.unscored.map((note) => `“${note.phrase}”: ${note.reason}`);
  if (unscored.length) $("unread").textContent += ` ${unscored.join(" ")}`;
  const deep = parsed.relations.some((one) => DEPTH.includes(one.relation)) && !off;
  $("depth").hidden = !deep;
  $("depth").textContent = state.depth ? "Leave depth out" : "Let height in the picture stand for depth";
  $("switch").setAttribute("aria-checked", String(!off));
  $("switch").setAttribute("aria-label", `Rank by place: ${read.map(words).join(", ")}`);
  $("switch").title = off ? "Let places rank again" : "Switch places off: rank by words alone";
  const facts = make("span", { className: "facts" });
  for (const one of read) {
    const text = make("span", { className: "words" }, `${one.subject} `);
    text.append(make("em", { textContent: plain(one.relation) }), one.object ? ` ${one.object}` : "");
    facts.append(make("span", { className: "fact" }, picto(one.relation), text));
  }
  $("switch").replaceChildren(facts, make("span", { className: "track" }));
  for (const input of document.querySelectorAll("#views input")) input.checked = input.value === state.view;
}

function title(heading, name, how) {
  heading.replaceChildren(name, make("small", { textContent: how }));
}

const plain = (relation) => relation.replaceAll("_", " ");
const words = (one) => [one.subject, plain(one.relation), one.object].filter(Boolean).join(" ");

// How far a picture moved from the native ranking to the spatial one.
function move(native, spatial, where) {
  if (native === spatial) return null;
  const up = spatial < native;
  const arrow = up ? "↑" : "↓";
  const text = where === "native" ? `${arrow} native ${numbers.format(native)}` : `${arrow} spatial ${numbers.format(spatial)}`;
  return { text, kind: up ? "up" : "" };
}

function lay(section, hits, moved) {
  const wall = section.querySelector(".wall");
  const old = new Map([...wall.children].map((tile) => [tile.dataset.id, tile]));
  wall.replaceChildren(...hits.map((hit, at) => tile(hit, at, hits, moved(hit), old.get(hit.id))));
}

function tile(hit, at, hits, moved, old) {
  const shot = old?.querySelector(".shot") ?? photograph(hit);
  shot.setAttribute("aria-label", `${hit.rank}: ${hit.path}${moved ? `, ${moved.text}` : ""}. Why is it here?`);
  shot.onclick = () => openBox(hits, at, shot);
  const meta = make("div", { className: "meta" }, make("span", { className: "rank", textContent: hit.rank }));
  if (moved) meta.append(make("span", { className: `move ${moved.kind}`, textContent: moved.text }));
  const item = make("li", { className: "tile" }, shot, meta);
  item.dataset.id = hit.id;
  if (old) item.style.setProperty("--ratio", old.style.getPropertyValue("--ratio"));
  item.onmouseenter = item.onfocusin = () => twins(hit.id, true);
  item.onmouseleave = item.onfocusout = () => twins(hit.id, false);
  return item;
}

function photograph(hit) {
  const image = make("img", { alt: "", loading: "lazy", decoding: "async" });
  const shot = make("button", { type: "button", className: "shot" }, image);
  image.onload = () => {
    const ratio = Math.min(2.6, Math.max(0.5, image.naturalWidth / image.naturalHeight));
    shot.closest(".tile")?.style.setProperty("--ratio", ratio.toFixed(4));
    image.classList.add("there");
  };
  image.onerror = () => image.replaceWith(make("span", { className: "gone", textContent: "This picture is no longer there." }));
  image.src = `/v1/images/${hit.id}/thumb?side=640`;
  return shot;
}

function twins(id, on) {
  if (!state.other) return;
  for (const one of document.querySelectorAll(`.tile[data-id="${id}"]`)) one.classList.toggle("twin", on);
}

// Why is it here? ------------------------------------------------------------------------------------------

function openBox(hits, at, opener) {
  state.shown = hits;
  state.opener = opener;
  turn(at);
  $("box").showModal();
}

function turn(at) {
  const hit = state.shown[at];
  if (!hit) return;
  state.at = at;
  const answer = state.other?.hits === state.shown ? state.other : state.main;
  $("box-image").src = `/v1/images/${hit.id}/thumb?side=1280`;
  $("box-image").alt = hit.path;
  $("box-name").textContent = hit.path;
  $("box-place").textContent =
    answer.mode === "spatial"
      ? `Rank ${numbers.format(hit.rank)}, by words alone ${numbers.format(hit.native_rank)}`
      : `Rank ${numbers.format(hit.rank)}`;
  $("box-file").href = `/v1/images/${hit.id}/file`;
  const rows = [row("What is shown", hit.native_score, "native", hit)];
  if (answer.mode === "spatial") {
    rows.push(row("Where it stands", hit.spatial_score, "spatial", hit));
    if (answer.relations.length > 1) {
      answer.relations.forEach((one, i) => rows.push(row(words(one), hit.contributions[i], "part", hit)));
    }
    rows.push(row("Score", hit.score, "sum", hit));
  }
  $("box-proxy").hidden = !answer.relations.some((one) => one.proxy);
  $("box-scores").replaceChildren(...rows);
  document.querySelector(".turn.back").disabled = at === 0;
  document.querySelector(".turn.on").disabled = at === state.shown.length - 1;
}

function row(name, score, kind, hit) {
  const head = make("th", { scope: "row", textContent: name });
  if (kind === "native" || kind === "spatial") {
    const bar = make("span", { className: `bar ${kind}` });
    const whole = Math.abs(hit.native_score) + Math.abs(hit.spatial_score) || 1;
    bar.style.width = `${Math.max(2, (100 * Math.abs(score)) / whole)}%`;
    head.append(bar);
  }
  const signed = kind === "spatial" || kind === "part" ? (score < 0 ? "−" : "+") : score < 0 ? "−" : "";
  const cell = make("td", { textContent: `${signed}${Math.abs(score).toFixed(4)}` });
  return make("tr", { className: kind }, head, cell);
}

// The address of the page says what is shown, so it can be kept, sent and gone back to. -------------------

function read() {
  const values = new URLSearchParams(location.search);
  state.query = (values.get("q") ?? "").trim();
  state.depth = values.get("depth") === "true";
  state.view = ["native", "split"].includes(values.get("view")) ? values.get("view") : "spatial";
  $("query").value = state.query;
}

function go(changes) {
  Object.assign(state, changes);
  const values = new URLSearchParams();
  if (state.query) values.set("q", state.query);
  if (state.query && state.view !== "spatial") values.set("view", state.view);
  if (state.query && state.depth) values.set("depth", "true");
  const address = values.size ? `/?${values}` : "/";
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  $("query").value = state.query;
  return search();
}

$("form").onsubmit = (event) => {
  event.preventDefault();
  $("query").blur();
  const query = $("query").value.trim();
  // A new query starts with its places on; the comparison stays if it was chosen.
  go({ query, view: state.view === "native" ? "spatial" : state.view, depth: state.depth && query === state.query });
};
$("switch").onclick = () => go({ view: state.view === "native" ? "spatial" : "native" });
$("views").onchange = (event) => go({ view: event.target.value });
$("depth").onclick = () => go({ depth: !state.depth });
$("more").onclick = more;
document.querySelector(".mark").onclick = (event) => {
  event.preventDefault();
  go({ query: "", view: "spatial", depth: false });
  $("query").focus();
};
window.onpopstate = () => {
  read();
  search();
};

const box = $("box");
document.querySelector(".turn.back").onclick = () => turn(state.at - 1);
document.querySelector(".turn.on").onclick = () => turn(state.at + 1);
box.querySelector(".close").onclick = () => box.close();
box.onclick = (event) => event.target === box && box.close();
box.onclose = () => {
  $("box-image").removeAttribute("src");
  state.opener?.focus();
};
document.onkeydown = (event) => {
  if (help.open) return;
  if (box.open) {
    if (event.key === "ArrowLeft") turn(state.at - 1);
    if (event.key === "ArrowRight") turn(state.at + 1);
  } else if (event.key === "/" && document.activeElement !== $("query")) {
    event.preventDefault();
    $("query").select();
  }
};

// What can be said -----------------------------------------------------------------------------------------

const help = $("help");
help.querySelector(".close").onclick = () => help.close();
help.onclick = (event) => event.target === help && help.close();
$("help-open").onclick = async () => {
  help.showModal();
  if ($("help-scored").childElementCount) return;
  try {
    const { relations } = await ask("/v1/relations");
    for (const one of relations) $(one.scored ? "help-scored" : "help-unscored").append(saying(one));
  } catch (error) {
    $("help-scored").replaceChildren(make("li", {}, sentence(error.message)));
  }
};

function saying({ name, phrases, example, note }) {
  const link = make("a", { className: "example", href: `/?q=${encodeURIComponent(example)}` }, picto(name), example);
  link.onclick = (event) => {
    event.preventDefault();
    help.close();
    go({ query: example, view: "spatial", depth: false });
  };
  return make("li", {}, link, make("span", { className: "quiet" }, phrases.join(", ")), ...(note ? [make("small", {}, note)] : []));
}

// Light and dark -------------------------------------------------------------------------------------------

const THEMES = ["automatic", "light", "dark"];
const theme = () => document.documentElement.dataset.theme ?? "automatic";
const sayTheme = () => ($("theme").textContent = `Theme: ${theme()}`);
$("theme").onclick = () => {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "automatic") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch { /* not kept, then */ }
  sayTheme();
};
sayTheme();

// Start ----------------------------------------------------------------------------------------------------

function showExamples(examples) {
  $("examples").replaceChildren(
    ...examples.map((query) => {
      const link = make("a", { className: "example", href: `/?q=${encodeURIComponent(query)}` }, query);
      // The drawing shows what the server reads.
      ask(`/v1/parse?${new URLSearchParams({ q: query })}`).then(
        ({ relations }) => relations.length && link.prepend(picto(relations[0].relation)),
        () => {},
      );
      link.onclick = (event) => {
        event.preventDefault();
        go({ query, view: "spatial", depth: false });
      };
      return link;
    }),
  );
}

read();
const first = search();
if (!state.query) $("query").focus();
insist("/v1/info").then(
  async ({ index, examples }) => {
    $("facts").textContent = `${pictures(index.images)}, ${index.encoder.name} encoder`;
    showExamples(examples);
    await first;
    if (!state.query) tell("");
  },
  (error) => tell(sentence(error.message), true),
);
