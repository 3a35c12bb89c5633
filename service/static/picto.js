// Little drawings of relations: the subject is a dot, the object a square.
const SVG = "http://www.w3.org/2000/svg";

// Centres of subject and object on a field of 28 x 28.
const PAIRS = {
  left_of: [[8, 14], [20, 14]],
  right_of: [[20, 14], [8, 14]],
  above: [[14, 8], [14, 20]],
  below: [[14, 20], [14, 8]],
  in_front_of: [[14, 17], [14, 11]],
  behind: [[14, 10], [14, 17]],
};
const PLACES = {
  at_left: [9.5, 14], at_right: [18.5, 14], at_top: [14, 11], at_bottom: [14, 17], at_center: [14, 14],
  at_top_left: [9.5, 11], at_top_right: [18.5, 11], at_bottom_left: [9.5, 17], at_bottom_right: [18.5, 17],
};

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function picto(relation) {
  const svg = shape("svg", { viewBox: "0 0 28 28", class: "picto", "aria-hidden": "true" });
  if (relation in PAIRS) {
    const [[x, y], [u, v]] = PAIRS[relation];
    const subject = shape("circle", { class: "subject", cx: x, cy: y, r: 4.2 });
    const object = shape("rect", { class: "object", x: u - 4, y: v - 4, width: 8, height: 8, rx: 1.6 });
    svg.append(...(relation === "behind" ? [subject, object] : [object, subject]));
  } else {
    svg.append(shape("rect", { class: "frame", x: 5.5, y: 7.5, width: 17, height: 13, rx: 2 }));
    const [x, y] = PLACES[relation] ?? [14, 14];
    svg.append(shape("circle", { class: "subject", cx: x, cy: y, r: 2.6 }));
  }
  return svg;
}
