// Draws the interface's own description.
const $ = (id) => document.getElementById(id);

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

function typeOf(schema, schemas) {
  const one = schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (one.anyOf) return one.anyOf.filter((part) => part.type !== "null").map((part) => typeOf(part, schemas)).join(" or ");
  if (one.type === "array") return `list of ${typeOf(one.items ?? {}, schemas)}`;
  if (schema.$ref) return schema.$ref.split("/").pop();
  const { minimum, maximum } = one;
  return (one.type ?? "any") + (minimum !== undefined ? `, ${minimum} to ${maximum}` : "");
}

function table(rows) {
  const body = make("tbody");
  for (const [name, schema, schemas, description] of rows) {
    const fallback = schema.default !== undefined && schema.default !== null ? `; ${JSON.stringify(schema.default)}` : "";
    body.append(
      make("tr", {}, make("th", {}, make("code", { textContent: name })), make("td", {}, ...coded(description ?? schema.description ?? "")),
        make("td", { className: "quiet", textContent: typeOf(schema, schemas) + fallback })),
    );
  }
  return make("table", {}, body);
}

// Text with `names` in it.
function coded(text) {
  return text.split("`").map((part, i) => (i % 2 ? make("code", { textContent: part }) : part));
}

function attempt(path) {
  const start = { "/v1/search": "/v1/search?q=a cup to the left of a laptop&k=3", "/v1/parse": "/v1/parse?q=a cup to the left of a laptop" };
  const input = make("input", { value: start[path] ?? path, spellcheck: false, ariaLabel: "Address to ask" });
  const output = make("pre", { hidden: true, tabIndex: 0 });
  const form = make("form", {}, input, make("button", { textContent: "Ask" }));
  form.onsubmit = async (event) => {
    event.preventDefault();
    output.hidden = false;
    try {
      const response = await fetch(input.value);
      const text = await response.text();
      output.textContent = `${response.status} ${response.statusText}\n\n${pretty(text)}`;
    } catch (error) {
      output.textContent = String(error);
    }
  };
  return [form, output];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text.slice(0, 2000);
  }
}

const [description, said] = await Promise.all(["/openapi.json", "/v1/relations"].map(async (path) => (await fetch(path)).json()));
const schemas = description.components.schemas;
const operations = Object.entries(description.paths).flatMap(([path, verbs]) =>
  Object.entries(verbs).map(([verb, operation]) => {
    const title = make("h3", {}, make("span", { className: "verb", textContent: verb.toUpperCase() }), make("code", { textContent: path }));
    const article = make("article", {}, title, make("p", { textContent: operation.description ?? operation.summary }));
    const body = operation.requestBody?.content["application/json"]?.schema;
    const parameters = (operation.parameters ?? []).map((one) => [one.name, one.schema, schemas, one.description]);
    const fields = body ? Object.entries(schemas[body.$ref.split("/").pop()].properties).map(([name, schema]) => [name, schema, schemas]) : [];
    if (parameters.length + fields.length) article.append(table([...parameters, ...fields]));
    if (verb === "get" && !path.includes("{")) article.append(...attempt(path));
    return article;
  }),
);
$("operations").replaceChildren(...operations);
$("sayings").replaceChildren(
  ...said.relations.map((one) =>
    make("tr", {}, make("th", {}, make("code", { textContent: one.name })), make("td", { textContent: one.phrases.join(", ") }),
      make("td", { className: "quiet", textContent: one.scored ? one.example : one.note || "understood, not scored" })),
  ),
);
if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
