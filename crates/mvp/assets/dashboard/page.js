// The dashboard. Each event replaces one section: the page keeps no history, and does not grow.

import { ago, api, at, count, el, named, nothing, now, number, plain, row, say, searched, tick } from "./parts.js";
import { bars, flow as draw, rate } from "./drawing.js";

/** The most rows of a table. A search shows others. */
const ROWS = 400;
/** The gateway sends something every 10 s. */
const SILENCE = 25_000;
/** Every stream ends after a while, and the browser connects again within a second. */
const PATIENCE = 3_000;

const data = {};
let all = null;

const show = { gateway, findings, members, others: members, skew, flow, averted, refusals, callers, certificates };

/** The order of members: the worst come first, after this one. */
const WORST = ["bad", "warn", "good"];

// Health of a member: what is wrong comes first.
function health(member) {
  if (!member.present) return ["warn", "left", "remembered; its APIs get 503, not 404"];
  if (member.ejected) return ["bad", "ejected", "requests to it failed; others take its place"];
  if (member.error) return ["bad", "no answer", member.error];
  if (member.view === "unknown") return ["bad", "never seen", "what it serves is not known"];
  if (member.view === "stale") return ["warn", "stale", "it has not confirmed what it serves"];
  return ["good", "healthy", null];
}

const tag = ([kind, word]) => el("span", `tag ${kind}`, word);

function gateway({ id, version, commit, release, ready, live, started, named: namesShown }) {
  const build = `${version} ${commit}`;
  if (data.build && data.build !== build) {
    location.reload();
  }
  data.build = build;
  const name = id ?? "load balancer";
  say("id", name);
  say("release", release ? `beside Kubernetes ${release}` : "");
  document.title = plain(`${ready && live ? "" : "! "}${name} · mvp`);
  at("about").replaceChildren(
    `mvp ${version}`, commit ? ` (${commit.slice(0, 9)})` : "", started ? ", up " : "",
    started ? ago(started, "", "") : "", namesShown ? "" : ". Names of users and addresses are not shown here.",
  );
  state();
}

function state() {
  if (stream?.readyState === EventSource.OPEN && data.gateway) {
    const { ready, live } = data.gateway;
    const urgent = (data.findings ?? []).some((finding) => finding.urgent);
    const [word, kind] = !live ? ["not live", "bad"] : !ready ? ["not ready", "bad"] : urgent ? ["needs action", "warn"] : ["healthy", "good"];
    say("state", word, `pill ${kind}`);
  }
}

function findings(list) {
  const items = list.map(({ urgent, what, advice }) =>
    el("li", urgent ? "urgent" : "note-only", el("strong", "", what), advice ? el("p", "", advice) : null));
  say("h-action", list.some((one) => one.urgent) ? "Needs action" : list.length ? "To know" : "Nothing needs action");
  at("findings").replaceChildren(...(items.length ? items : [el("li", "fine", "Every check passes.")]));
  state();
}

function members() {
  const list = (data.members ?? []).map((member) => ({ ...member, health: health(member)[0] }));
  const bad = list.filter((member) => member.health !== "good").length;
  say("figure-members", `${list.length - bad} of ${list.length}`, bad ? "bad" : "");
  const releases = [...new Set(list.map((member) => member.release).filter(Boolean))].sort();
  say("note-members", releases.length ? `Kubernetes ${releases.join(", ")}` : "");
  const told = new Map((data.others ?? []).map((other) => [other.id, other]));
  list.sort((a, b) => Boolean(b.local) - Boolean(a.local) || WORST.indexOf(a.health) - WORST.indexOf(b.health));
  const rows = list.map((member) => memberRow(member, told.get(member.id)));
  at("members-rows").replaceChildren(...(rows.length ? rows : [nothing(8, "No member is known yet.")]));
  if (data.flow) flow(data.flow);
}

function memberRow(member, other) {
  const found = health(member);
  const name = el("span", "", member.id, member.local ? el("small", "", " this one") : null);
  if (member.address) {
    name.append(el("small", "why mono", ` ${member.address}`));
  }
  const seen = member.never ? "never" : member.confirmed === null ? "now" : ago(member.confirmed);
  const health_ = el("td", "", tag(found), found[2] ? el("span", "why", found[2]) : null);
  const own = member.local ? ownState() : other?.state;
  const silent = member.kind === "bare" ? "none" : other ? other.noAnswer : "…";
  const side = own ? gatewayState(own) : el("span", "note", silent ?? "");
  const [averted, refused] = own ? [own.averted, own.refused].map((one) => (one === null ? "–" : count(one))) : ["", ""];
  return row(name, member.release ?? "unknown", health_, seen, side, number(averted), number(refused), number(own ? left(own.expires) : ""));
}

/** The columns of this gateway in the table of members. */
function ownState() {
  if (!data.gateway || !data.refusals || !data.averted) return null;
  const { version, ready, live, started } = data.gateway;
  const urgent = (data.findings ?? []).filter((one) => one.urgent).length;
  const refused = data.refusals.total.reduce((sum, one) => sum + one.count, 0);
  const expires = data.certificates?.list.map((one) => one.expires) ?? [];
  return { version, ready, live, started, urgent, refused, averted: data.averted.total, expires: expires.length ? Math.min(...expires) : null };
}

function gatewayState({ version, ready, live, started, urgent }) {
  const found = !live ? ["bad", "not live"] : !ready ? ["bad", "not ready"] : urgent ? ["warn", `${urgent} to act on`] : ["good", "ready"];
  return el("span", "", tag(found), el("small", "", ` ${version}`), started ? ago(started, ", up ", "") : null);
}

const days = (expires) => (expires - now()) / 86400;
const MANY_DAYS = 3650;
const left = (expires) => {
  if (expires === null || expires === undefined) return "";
  return days(expires) > MANY_DAYS ? "over 10 y" : `${Math.floor(days(expires))} d`;
};

function skew(document_) {
  const { servers, apis, leftOut } = document_;
  const resources = apis.filter((one) => !one.subresource).length;
  say("figure-skew", count(apis.length + leftOut), apis.length ? "warn" : "");
  say("note-skew", apis.length ? `${count(resources)} resources, ${count(apis.length - resources)} subresources`
    : servers.length < 2 ? "nothing to compare" : `all ${servers.length} servers are alike`);
  if (at("skew-all").checked) loadAll(); else table();
}

async function loadAll() {
  try {
    const answer = await fetch("/dashboard/apis");
    all = answer.ok ? await answer.json() : null;
  } catch {
    all = null;
  }
  table();
}

/** The matrix, as far as the search and the checkbox ask for it. */
function table() {
  const shown = at("skew-all").checked && all ? all : data.skew;
  if (!shown) return;
  const wanted = at("skew-search").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  // Differences come first.
  const found = shown.apis.filter((one) => wanted.every((word) => searched(one).includes(word)));
  at("skew-head").replaceChildren(head("API"), ...shown.servers.map((server) =>
    head(server.name, server.problem ? "no answer" : server.release ?? "")));
  const rows = found.slice(0, ROWS).map((one) => row(api(one), ...cells(one, shown.servers)));
  const why = wanted.length ? "Nothing found." : shown.servers.length < 2 ? "There is nothing to compare." : "All servers serve the same APIs.";
  at("skew-rows").replaceChildren(...(rows.length ? rows : [nothing(shown.servers.length + 1, why)]));
  const more = found.length - rows.length;
  const notes = [];
  if (more > 0) notes.push(`${count(more)} more: search for them, or run mvp skew.`);
  if (shown.leftOut) notes.push(`${count(shown.leftOut)} APIs are too many for this page, and are not searched: run mvp skew.`);
  say("skew-more", notes.join(" "));
}

function head(name, under) {
  const cell = el("th", "", typeof name === "string" ? named(name) : name, under ? el("small", "", under) : null);
  cell.scope = "col";
  return cell;
}

/** The same words as `mvp skew`. */
function cells(one, servers) {
  const union = new Set(Object.values(one.servers).flatMap((verbs) => verbs ?? []));
  return servers.map(({ name }) => {
    if (!Object.hasOwn(one.servers, name)) return el("td", "silent", "?");
    const verbs = one.servers[name];
    if (verbs === null) return el("td", "no", "no");
    const missing = [...union].filter((verb) => !verbs.includes(verb));
    return missing.length ? el("td", "part", `without ${missing.join(",")}`) : el("td", "yes", "yes");
  });
}

function flow({ recorded, edges }) {
  const known = (data.members ?? []).map((member) => ({ ...member, health: health(member)[0] }));
  if (edges.length === 0) {
    const why = recorded ? "No requests in the last seconds." : "Off. Start mvp serve with --dashboard-flow to see which member answers what.";
    at("flow-drawing").replaceChildren(el("p", "note", why));
  } else {
    at("flow-drawing").replaceChildren(draw(edges, known, at("flow-drawing").clientWidth < 480));
  }
  at("flow-table").hidden = edges.length === 0;
  const rows = edges.slice().sort((a, b) => b.rate - a.rate).slice(0, 60).map((one) =>
    row(named(one.from), one.to ? named(one.to) : "refused", api(one), number(rate(one.rate)), number(one.errors ? rate(one.errors) : "0")));
  at("flow-rows").replaceChildren(...rows);
}

const sum = (values) => values.reduce((a, b) => a + b, 0);

function averted({ total, apis, bars: values }) {
  say("figure-averted", total === null ? "–" : count(total));
  say("note-averted", `${count(sum(values))} in the last hour`);
  at("averted-bars").replaceChildren(bars(values, "averted", "false 404s"));
  at("averted-apis").replaceChildren(...apis.filter((one) => one.count).map((one) =>
    el("li", "", api(one), el("span", "", count(one.count)))));
  if (data.members) members();
}

function refusals({ total, bars: values, recent }) {
  const lately = sum(values);
  say("figure-refused", count(sum(total.map((one) => one.count))), lately ? "warn" : "");
  say("note-refused", `${count(lately)} in the last hour`);
  at("refusals-bars").replaceChildren(bars(values, "refused", "refusals"));
  const old = total.filter((one) => !recent.some((other) => other.reason === one.reason));
  const item = (when, { reason, count: number_, advice }) =>
    el("li", "note-only", el("strong", "", reason), ` × ${count(number_)}, `, when, advice ? el("p", "", advice) : null);
  at("refusals-recent").replaceChildren(
    ...recent.map((one) => item(ago(one.at), one)),
    ...old.map((one) => item(el("small", "", "since the start"), one)));
  if (data.members) members();
}

/** The same words as `mvp callers`: a hash is not a name. */
function user({ user: name, source }) {
  if (name === null) return `(${source})`;
  return source === "token-hash" ? `token:${name}` : name;
}

function callers({ recorded, named: namesShown, resources = [], leftOut = 0 }) {
  const notes = [];
  if (!recorded) notes.push("Callers are not recorded (--record-callers).");
  if (recorded && !namesShown) notes.push("Names are shown over the Unix socket, and over TLS to allowed groups.");
  if (leftOut) notes.push(`${count(leftOut)} more APIs: run mvp callers.`);
  say("callers-note", notes.join(" "));
  const wanted = at("callers-search").value.trim().toLowerCase();
  const rows = [];
  for (const one of resources) {
    const more = { user: null, source: "more callers", agent: null, requests: one.more };
    const list = !namesShown ? [{ requests: one.requests }] : one.more ? [...one.callers, more] : one.callers;
    for (const caller of list) {
      const who = namesShown ? `${user(caller)} ${caller.agent ?? ""}` : "";
      if (wanted && !`${searched(one)} ${who}`.toLowerCase().includes(wanted)) continue;
      const cell = namesShown
        ? el("td", "", user(caller), caller.agent === null ? null : el("span", "why", caller.agent || "no user agent"))
        : el("td", "", `${count(one.count)} ${one.count === 1 ? "caller" : "callers"}`);
      rows.push(row(api(one), cell, number(count(caller.requests))));
    }
  }
  at("callers-rows").replaceChildren(...(rows.length ? rows.slice(0, ROWS) : [nothing(3, "None.")]));
}

function certificates({ list, failing }) {
  const first = list[0];
  const kind = first && days(first.expires) < 7 ? "bad" : first && days(first.expires) < 30 ? "warn" : "";
  say("figure-days", first ? left(first.expires) : "–", kind);
  say("note-days", first ? first.flag : "none from files");
  const rows = list.map(({ flag, expires }) => {
    const name = el("span", "mono", flag, " ", failing.includes(flag) ? el("span", "tag bad", "not reloaded") : null);
    return row(name, new Date(expires * 1000).toISOString().slice(0, 16).replace("T", " "), number(days(expires) > MANY_DAYS ? "over 3650" : Math.floor(days(expires))));
  });
  at("certificates-rows").replaceChildren(...(rows.length ? rows : [nothing(3, "None from files.")]));
  if (data.members) members();
}

// The stream.
let stream = null;
let heard = Date.now();
let broken = null;
let lost = null;
/** Why the gateway refuses the stream, if it does. */
let refused = "";
const EVENTS = "/dashboard/events";
const REASONS = {
  401: "It asks for a client certificate: reload the page.",
  403: "It refuses your certificate, or the name in the address bar.",
  503: "Too many pages are open: close some.",
};

function connect() {
  stream?.close();
  stream = new EventSource(EVENTS);
  stream.onopen = heardOf;
  stream.onerror = () => { broken ??= Date.now(); };
  stream.addEventListener("alive", heardOf);
  for (const name of Object.keys(show)) {
    stream.addEventListener(name, (event) => {
      heardOf();
      data[name] = JSON.parse(event.data);
      show[name](data[name]);
    });
  }
}

function heardOf() {
  heard = Date.now();
  broken = null;
  if (lost) {
    lost = null;
    refused = "";
    at("offline").hidden = true;
  }
  state();
}

function offline() {
  lost ??= new Date(heard);
  const then = data.gateway ? "What you see is from then." : "";
  at("offline").hidden = false;
  say("offline", `No connection to the gateway since ${lost.toLocaleTimeString()}. ${then} ${refused}`);
  say("state", "no connection", "pill bad");
}

/** Asks why there is no stream: an event source does not tell. */
async function askWhy() {
  try {
    const answer = await fetch(EVENTS, { method: "HEAD" });
    refused = REASONS[answer.status] ?? "";
  } catch {
    refused = "";
  }
}

// Browsers have few connections to one server: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream.close();
  } else {
    heard = Date.now();
    connect();
  }
});

setInterval(() => {
  tick();
  if (document.hidden) return;
  const silent = Date.now() - heard > SILENCE;
  if (silent || (broken && Date.now() - broken > PATIENCE)) offline();
  // After an answer that is no stream, or a silence, the browser does not connect again by itself.
  if (silent || stream.readyState === EventSource.CLOSED) {
    askWhy();
    connect();
    heard = Date.now();
  }
}, 1000);

setInterval(() => data.certificates && certificates(data.certificates), 60_000);

// Themes and keys.
const THEMES = { auto: ["Auto", "as the system"], light: ["Light", "light"], dark: ["Dark", "dark"] };

function theme(name) {
  const root = document.documentElement;
  if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
  at("theme").textContent = THEMES[name][0];
  at("theme").setAttribute("aria-label", `${THEMES[name][0]} theme: ${THEMES[name][1]}`);
  try {
    localStorage.setItem("mvp-theme", name);
  } catch {
    // It lasts until the page is closed.
  }
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const current = document.documentElement.dataset.theme ?? "auto";
  theme(names[(names.indexOf(current) + 1) % names.length]);
}

const KEYS = {
  "/": () => at("skew-search").focus(),
  d: () => at("skew").scrollIntoView(),
  m: () => at("members").scrollIntoView(),
  t: nextTheme,
};

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement && event.target.type === "search";
  if (event.key === "Escape" && typing) {
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
    event.target.blur();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

at("theme").addEventListener("click", nextTheme);
at("skew-search").addEventListener("input", table);
at("skew-all").addEventListener("change", () => (at("skew-all").checked ? loadAll() : table()));
at("callers-search").addEventListener("input", () => data.callers && callers(data.callers));
theme(document.documentElement.dataset.theme ?? "auto");
connect();
