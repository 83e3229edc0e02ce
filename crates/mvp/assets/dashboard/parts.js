// Small parts of the page. Texts of members and users go through `textContent` only.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this ID. */
export const at = (id) => document.getElementById(id);

/** An element with a class and children, which are elements or texts. */
export function el(name, className, ...children) {
  return filled(document.createElement(name), className, children);
}

/** The same in a drawing, with attributes. */
export function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  return filled(made, "", children);
}

function filled(made, className, children) {
  if (className) {
    made.setAttribute("class", className);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) {
      made.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return made;
}

/** Sets a text, if it is another one: a screen reader reads changes. */
export function say(id, text, className) {
  const element = at(id);
  if (element.textContent !== text) {
    element.textContent = text;
  }
  if (className !== undefined && element.className !== className) {
    element.className = className;
  }
}

/** A row of a table: the first cell names it. */
export function row(first, ...cells) {
  const head = el("th", "", first);
  head.scope = "row";
  const others = cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : el("td", "", cell)));
  return el("tr", "", head, ...others);
}

/** A cell with a number. */
export const number = (value) => el("td", "number", value);

/** A row that says why there are no others. */
export function nothing(columns, why) {
  const cell = el("td", "note", why);
  cell.colSpan = columns;
  return el("tr", "", cell);
}

/** `GROUP/VERSION RESOURCE/SUBRESOURCE`, the resource first. */
export function api({ group, version, resource, subresource }) {
  if (!resource) {
    return el("span", "note", "paths without a resource");
  }
  const name = subresource ? `${resource}/${subresource}` : resource;
  return el("span", "", name, " ", el("small", "group", groupVersion(group, version)));
}

export const groupVersion = (group, version) => (group ? `${group}/${version}` : version);

/** The text that a search looks at. */
export const searched = ({ group, version, resource, subresource }) =>
  `${group}/${version}/${resource}${subresource ? `/${subresource}` : ""}`.toLowerCase();

/** A number for people. */
export const count = (value) => Number(value).toLocaleString("en");

/** Seconds as the largest unit. */
export function duration(seconds) {
  const rounded = Math.max(0, Math.round(seconds));
  if (rounded < 120) {
    return `${rounded} s`;
  }
  if (rounded < 7200) {
    return `${Math.floor(rounded / 60)} min`;
  }
  return rounded < 172800 ? `${Math.floor(rounded / 3600)} h` : `${Math.floor(rounded / 86400)} d`;
}

/** A time in the past that counts on; `tick` keeps it. */
export function ago(seconds, before = "", after = " ago") {
  const made = el("time", "", `${before}${duration(now() - seconds)}${after}`);
  made.dataset.since = seconds;
  made.dataset.before = before;
  made.dataset.after = after;
  return made;
}

/** Counts all times on. */
export function tick() {
  for (const made of document.querySelectorAll("time[data-since]")) {
    const { since, before, after } = made.dataset;
    const text = `${before}${duration(now() - Number(since))}${after}`;
    if (made.textContent !== text) {
      made.textContent = text;
    }
  }
}

/** Unix time in seconds. */
export const now = () => Date.now() / 1000;
