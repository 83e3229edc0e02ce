// Small parts of the page. Texts of members and users go through `textContent` only.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this ID. */
export const at = (id) => document.getElementById(id);

/** Characters that show nothing, or turn the text around them: `mvp` escapes the same in a terminal. */
const INVISIBLE = /[\p{Cc}\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;
export const plain = (text) => String(text).replace(INVISIBLE, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

/** A name of at most so many characters: the end often tells names apart. */
export function short(name, most) {
  const letters = [...plain(name)];
  const half = (most - 1) / 2;
  return letters.length <= most ? letters.join("")
    : `${letters.slice(0, Math.ceil(half)).join("")}…${letters.slice(-Math.floor(half)).join("")}`;
}

/** The same as an element, which tells the whole name to those who point at it. */
export function named(name, most = 28) {
  const made = el("span", "", short(name, most));
  if (made.textContent !== plain(name)) {
    made.title = plain(name);
  }
  return made;
}

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
      made.append(child instanceof Node ? child : document.createTextNode(plain(child)));
    }
  }
  return made;
}

/** Sets a text, if it is another one: a screen reader reads changes. */
export function say(id, text, className) {
  const element = at(id);
  const shown = plain(text);
  if (element.textContent !== shown) {
    element.textContent = shown;
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
