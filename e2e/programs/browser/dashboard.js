// Looks at the dashboard of a gateway with Chromium. Each line of standard input is a command as JSON, and
// each line of standard output its answer: {"ok": …} or {"error": …}.
//
// Usage: node dashboard.js CHROMIUM

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

// The packages are in the folder in which this runs.
const require = createRequire(join(process.cwd(), "package.json"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const WITHIN = 20_000;
// With a fresh profile, which Playwright removes at the end.
const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--js-flags=--expose-gc",
  ],
});

let page = null;
const more = [];
/** What the page reported as wrong: errors of scripts, and what its policy forbade. */
const problems = [];

async function open({ url, theme = "light", width = 1440, height = 900 }) {
  // A context of its own: the pages of one have few connections to one server.
  const context = await browser.newContext({ colorScheme: theme, reducedMotion: "reduce", viewport: { width, height } });
  const opened = await context.newPage();
  opened.on("pageerror", (error) => problems.push(String(error)));
  opened.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  await opened.goto(url);
  await opened.waitForSelector("#members-rows tr th[scope=row]", { timeout: WITHIN });
  await opened.waitForFunction(() => document.getElementById("figure-skew").textContent !== "–", null, { timeout: WITHIN });
  return opened;
}

/** The health of each member, by its ID. */
const HEALTH = () => Object.fromEntries([...document.querySelectorAll("#members-rows tr")].map((row) =>
  [row.querySelector("th span").firstChild.textContent, row.querySelector("td .tag")?.textContent]));

const commands = {
  async open(options) {
    page = await open(options);
    return await page.evaluate(HEALTH);
  },

  /** What the table of differences says: each row as texts. */
  async matrix() {
    return await page.evaluate(() => {
      const texts = (row) => [...row.children].map((cell) => cell.textContent.trim());
      const head = texts(document.getElementById("skew-head"));
      const names = [...document.querySelectorAll("#skew-head th")].map((cell) => cell.firstChild.textContent);
      return { head, names, rows: [...document.querySelectorAll("#skew-rows tr")].map(texts) };
    });
  },

  /** Rows after a search among all APIs, and then again those that differ. */
  async search({ word }) {
    await page.keyboard.press("/");
    await page.keyboard.type(word);
    await page.check("#skew-all");
    await page.waitForFunction((w) => [...document.querySelectorAll("#skew-rows th")].some((cell) => cell.textContent.includes(w)), word, { timeout: WITHIN });
    const found = await page.locator("#skew-rows tr").count();
    await page.uncheck("#skew-all");
    await page.focus("#skew-search");
    await page.keyboard.press("Escape");
    return found;
  },

  /** Begins to watch a member. The page itself notes the time, so that nothing is added to it. */
  async watch({ id }) {
    await page.evaluate((wanted) => {
      const row = () => [...document.querySelectorAll("#members-rows tr")].find((one) => one.querySelector("th span").firstChild.textContent === wanted);
      window.changedAt = new Promise((resolve) => {
        const look = () => {
          const health = row()?.querySelector("td .tag")?.textContent;
          if (health && health !== "healthy") {
            watcher.disconnect();
            resolve({ at: Date.now(), health });
          }
        };
        const watcher = new MutationObserver(look);
        watcher.observe(document.getElementById("members-rows"), { childList: true, subtree: true, characterData: true });
        look();
      });
    }, id);
    return true;
  },

  async changed() {
    return await page.evaluate(() => window.changedAt);
  },

  /** Waits until all members are healthy. */
  async healthy() {
    await page.waitForFunction(() => [...document.querySelectorAll("#members-rows tr td:nth-child(3) .tag")].every((tag) => tag.textContent === "healthy"), null, { timeout: 60_000 });
    return true;
  },

  /** Waits until requests between members are drawn. Returns the members on both sides of each line. */
  async flow() {
    await page.waitForSelector("#flow-drawing path.edge", { timeout: WITHIN, state: "attached" });
    return await page.evaluate(() => [...document.querySelectorAll("#flow-drawing path.edge title")].map((title) => title.textContent.split("\n")[0]));
  },

  async text({ selector }) {
    return (await page.locator(selector).allTextContents()).join("\n");
  },

  /** What axe-core finds in a theme. */
  async axe({ theme }) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    // Not as a script of the page, which its policy forbids.
    await page.evaluate(AXE);
    const { violations, passes } = await page.evaluate(() => window.axe.run());
    const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
    return { violations: told, passes: passes.length };
  },

  async screenshot({ file, theme = "light", width = 1440, height = 900, full = false }) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    await page.setViewportSize({ width, height });
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: file, fullPage: full });
    await page.setViewportSize({ width: 1440, height: 900 });
    return true;
  },

  /** Opens more pages, or closes them with 0. */
  async many({ url, count }) {
    for (const one of more.splice(0)) {
      await one.context().close();
    }
    for (let number = 0; number < count; number += 1) {
      more.push(await open({ url }));
    }
    return more.length;
  },

  /** Closes the page. */
  async close() {
    await page.context().close();
    return true;
  },

  /** An hour of events in fast motion, and hostile names at its end: nodes, listeners and heap after its first minutes and at its end. */
  async hour({ url, seconds = 3600 }) {
    const sections = await first(url);
    const fast = await browser.newPage();
    fast.on("pageerror", (error) => problems.push(String(error)));
    await fast.addInitScript(() => {
      window.EventSource = class extends EventTarget {
        static CLOSED = 2;
        static OPEN = 1;
        readyState = 1;
        constructor() {
          super();
          window.source = this;
        }
        close() {}
      };
    });
    await fast.goto(url);
    const session = await fast.context().newCDPSession(fast);
    await session.send("Performance.enable");
    const play = async (from, to) => {
      await fast.evaluate(PLAY, { sections, from, to });
      await session.send("HeapProfiler.collectGarbage");
      const { metrics } = await session.send("Performance.getMetrics");
      const value = (name) => metrics.find((metric) => metric.name === name).value;
      return { nodes: value("Nodes"), listeners: value("JSEventListeners"), heap: value("JSHeapUsedSize") };
    };
    const before = await play(0, Math.round(seconds / 10));
    const after = await play(Math.round(seconds / 10), seconds);
    const order = await fast.evaluate(ORDER, sections);
    const hostile = await fast.evaluate(HOSTILE, sections);
    // How much wider the page is than a screen or a phone.
    const wider = [];
    for (const width of [1440, 390]) {
      await fast.setViewportSize({ width, height: 900 });
      wider.push(await fast.evaluate(() => document.documentElement.scrollWidth - innerWidth));
    }
    await fast.context().close();
    return { before, after, order, hostile: { ...hostile, wider: Math.max(...wider) } };
  },

  async problems() {
    return problems;
  },
};

/** The sections of a real stream. */
async function first(url) {
  const stop = new AbortController();
  const answer = await fetch(`${url}/events`, { signal: stop.signal });
  const sections = {};
  let text = "";
  for await (const chunk of answer.body) {
    text += Buffer.from(chunk).toString();
    for (const [, name, data] of text.matchAll(/event: (\w+)\ndata: (.*)\n\n/g)) {
      sections[name] ??= JSON.parse(data);
    }
    if (["members", "flow", "skew", "callers", "averted", "refusals"].every((name) => sections[name])) {
      break;
    }
  }
  stop.abort();
  return sections;
}

/** Plays some seconds. Every section changes in each of them. */
const PLAY = async ({ sections, from, to }) => {
  const send = (name, data) =>
    window.source.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  if (from === 0) {
    Object.entries(sections).forEach(([name, data]) => send(name, data));
  }
  for (let second = from; second < to; second += 1) {
    const ill = second % 7 === 0;
    send("members", sections.members.map((member, place) =>
      ({ ...member, error: ill && place === 1 ? `refused ${second}` : null, confirmed: ill ? second : null })));
    const [edge] = [sections.flow.edges[0] ?? { from: "a", to: "b", group: "", version: "v1", resource: "pods" }];
    send("flow", { ...sections.flow, edges: Array.from({ length: 12 }, (_, n) => ({ ...edge, resource: `kind-${n}`, rate: (second % 90) + n, errors: n % 3 })) });
    send("averted", { ...sections.averted, total: second, bars: Array.from({ length: 60 }, (_, n) => (second + n) % 13) });
    send("refusals", { ...sections.refusals, bars: [second % 9 + 1], recent: [{ at: second, reason: `reason-${second}`, count: second, advice: "wait" }] });
    if (second % 5 === 0) {
      send("callers", sections.callers);
    }
    if (second % 60 === 0) {
      send("skew", sections.skew);
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }
};

/** Sends members of which the last one fails. Returns their order on the page. */
const ORDER = ({ members }) => {
  const fine = { ...members[0], local: false, present: true, ejected: false, view: "fresh", error: null };
  const list = [{ ...fine, id: "own", local: true }, { ...fine, id: "fine" }, { ...fine, id: "ill", error: "refused" }];
  window.source.dispatchEvent(new MessageEvent("members", { data: JSON.stringify(list) }));
  return [...document.querySelectorAll("#members-rows th span")].map((one) => one.firstChild.textContent);
};

/** Sends names that are markup, and turn the text around them. Returns what became of them. */
const HOSTILE = async (sections) => {
  const markup = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
  const name = `${markup}\u202e\u0007\u200b`;
  const send = (section, data) =>
    window.source.dispatchEvent(new MessageEvent(section, { data: JSON.stringify(data) }));
  const api = { group: name, version: name, resource: name, subresource: name };
  const member = { ...sections.members[0], id: name, release: name, error: name, address: name };
  send("gateway", { ...sections.gateway, id: name, release: name });
  send("members", [member]);
  send("others", [{ id: name, kind: "mvp", left: false, noAnswer: name, state: null }]);
  send("findings", [{ urgent: true, what: name, advice: name }]);
  send("skew", { servers: [{ name, release: name }], apis: [{ ...api, servers: { [name]: [name] } }], leftOut: 0 });
  send("flow", { recorded: true, edges: [{ ...api, from: name, to: name, rate: 1, errors: 1 }] });
  send("averted", { total: 1, apis: [{ ...api, count: 1 }], bars: [1] });
  send("refusals", { total: [], bars: [1], recent: [{ at: 1, reason: name, count: 1, advice: name }] });
  send("callers", { recorded: true, named: true, resources: [{ ...api, count: 1, requests: 1, more: 7, callers: [{ user: name, source: "authenticated", agent: name, requests: 1 }, { user: "0a1b", source: "token-hash", agent: "", requests: 1 }] }] });
  send("certificates", { list: [{ flag: name, expires: 4e9 }], failing: [name] });
  await new Promise((resolve) => setTimeout(resolve, 200));
  return {
    shown: document.body.textContent.split(markup).length - 1,
    invisible: document.documentElement.outerHTML.match(/[\u0007\u200b\u202e]/g)?.length ?? 0,
    callers: [...document.querySelectorAll("#callers-rows td:nth-child(2)")].slice(1).map((cell) => cell.firstChild.textContent),
    markup: document.querySelectorAll("main img, main script, header h1 img").length,
    ran: window.hacked ?? 0,
  };
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await commands[name](options)) ?? null };
  } catch (error) {
    answer = { error: `${name}: ${error.message ?? error}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
