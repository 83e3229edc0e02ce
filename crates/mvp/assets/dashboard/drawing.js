// The drawings: requests between members, and counts by minute.

import { count, el, plain, short, svg } from "./parts.js";

const STEP = 62;
const TALL = 40;
/** The boxes and the distance between them: on a phone smaller, so that texts are not. */
const WIDE = { width: 640, box: 190, letters: 20 };
const NARROW = { width: 380, box: 128, letters: 13 };
/** The most members of one side. */
const MOST = 12;
const REFUSED = "refused";

/** Who sent how many requests to whom. On the left are gateways, on the right those that answered. */
export function flow(edges, members, isNarrow) {
  const { width, box, letters } = isNarrow ? NARROW : WIDE;
  const [left, right] = [box / 2 + 8, width - box / 2 - 8];
  const sums = new Map();
  for (const edge of edges) {
    const to = edge.to || REFUSED;
    const key = JSON.stringify([edge.from, to]);
    const sum = sums.get(key) ?? { from: edge.from, to, rate: 0, errors: 0, apis: [] };
    sum.rate += edge.rate;
    sum.errors += edge.errors;
    sum.apis.push(edge);
    sums.set(key, sum);
  }
  const lines = [...sums.values()].sort((a, b) => b.rate - a.rate);
  const known = members.map((member) => member.id);
  const side = (of) => {
    const names = new Set(lines.map((line) => line[of]));
    const order = (name) => (name === REFUSED ? Infinity : (known.indexOf(name) + 1 || 1e6));
    return [...names].sort((a, b) => order(a) - order(b) || (a < b ? -1 : 1)).slice(0, MOST);
  };
  const [from, to] = [side("from"), side("to")];
  const height = Math.max(from.length, to.length, 1) * STEP + 24;
  const place = (names, name) => 24 + (height - 24) * (names.indexOf(name) + 0.5) / names.length;
  const shown = lines.filter((line) => from.includes(line.from) && to.includes(line.to));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  drawing.setAttribute("aria-label", plain(described(shown)));
  drawing.append(
    svg("text", { x: left, y: 13, class: "under" }, "clients connect to"),
    svg("text", { x: right, y: 13, class: "under" }, "answered by"),
  );
  const labels = [];
  for (const line of shown) {
    const [y1, y2] = [place(from, line.from), place(to, line.to)];
    const [x1, x2] = [left + box / 2, right - box / 2];
    const middle = (x1 + x2) / 2;
    const path = svg("path", {
      d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`,
      class: line.errors > 0 || line.to === REFUSED ? "edge errors" : "edge",
      "stroke-width": Math.min(9, 1.5 + Math.log2(1 + line.rate)).toFixed(1),
    });
    path.append(svg("title", {}, `${line.from} → ${line.to}: ${top(line.apis)}`));
    drawing.append(path);
    // Lines of one gateway fan out here; those of several come together further to the right.
    const t = 0.52 + (0.28 * (from.indexOf(line.from) + 0.5)) / from.length;
    const s = 1 - t;
    const curve = (a, b, c, d) => s ** 3 * a + 3 * s * s * t * b + 3 * s * t * t * c + t ** 3 * d;
    const x = curve(x1, middle, middle, x2);
    let y = curve(y1, y1, y2, y2) + 4;
    while (labels.some((one) => Math.abs(one.x - x) < 46 && Math.abs(one.y - y) < 13)) {
      y += 3;
    }
    labels.push({ x, y, text: rate(line.rate) });
  }
  drawing.append(...labels.map(({ x, y, text }) => svg("text", { x, y, class: "rate" }, text)));
  for (const [names, x] of [[from, left], [to, right]]) {
    for (const name of names) {
      drawing.append(...node(name, { x, y: place(names, name), box, letters }, members));
    }
  }
  return drawing;
}

function node(name, { x, y, box: width, letters }, members) {
  const member = members.find((one) => one.id === name);
  const health = name === REFUSED ? "bad" : member?.health ?? "";
  const box = svg("rect", {
    x: x - width / 2, y: y - TALL / 2, width, height: TALL, rx: 8, class: `node ${health}`,
  });
  const title = svg("text", { x, y: y - 1, class: "name" }, short(name, letters));
  title.append(svg("title", {}, name));
  const under = name === REFUSED ? "503, not a false 404" : short(member?.release ?? "", letters);
  return [box, title, svg("text", { x, y: y + 14, class: "under" }, under)];
}

const top = (apis) =>
  apis.slice(0, 8).map((one) => `${one.resource || "paths"} ${rate(one.rate)}`).join(", ");

const described = (lines) =>
  lines.length === 0
    ? "No requests."
    : `Requests in a second: ${lines.map((l) => `${l.from} to ${l.to} ${rate(l.rate)}`).join(", ")}.`;

/** A rate for people. */
export const rate = (value) => `${value >= 10 ? count(Math.round(value)) : value.toFixed(1)}/s`;

/** Counts of the last hour, minute by minute. */
export function bars(values, className, unit) {
  const sum = values.reduce((a, b) => a + b, 0);
  if (sum === 0) {
    return el("p", "note", `No ${unit} in the last hour.`);
  }
  const most = Math.max(...values);
  const [step, height] = [10, 60];
  // Stretched to the width of the page, so the texts are not part of it.
  const drawing = svg("svg", {
    viewBox: `0 0 ${step * values.length} ${height}`, preserveAspectRatio: "none", role: "img", class: `bars ${className}`,
  });
  drawing.setAttribute("aria-label", `${count(sum)} ${unit} in the last hour, at most ${count(most)} in a minute`);
  values.forEach((value, place) => {
    if (value > 0) {
      const tall = Math.max(2, (height * value) / most);
      drawing.append(svg("rect", { x: place * step + 1, y: height - tall, width: step - 2, height: tall }));
    }
  });
  return el("div", "", el("p", "axis", `at most ${count(most)} in a minute`), drawing,
    el("p", "axis ends", el("span", "", "an hour ago"), el("span", "", "now")));
}
