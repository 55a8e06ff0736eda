// The console: which page is shown follows from the address behind `#`.

import { get } from "./http/api.js";
import { poll } from "./http/poll.js";
import { alert, fill, h } from "./view/element.js";
import { watchFaults } from "./view/fault.js";
import { watchSignIn } from "./view/sign_in.js";
import { approvalsPage } from "./pages/approvals.js";
import { automationPage } from "./pages/automation.js";
import { chatPage } from "./pages/chat.js";
import { comparePage } from "./pages/compare.js";
import { deadLettersPage } from "./pages/dead_letters.js";
import { overviewPage } from "./pages/overview.js";
import { memoryPage } from "./pages/memory.js";
import { runPage } from "./pages/run.js";
import { runsPage } from "./pages/runs.js";
import { statisticsPage } from "./pages/statistics.js";
import { systemPage } from "./pages/system.js";
import { teamPage } from "./pages/team.js";

const PAGES = [
  { path: "overview", name: "Overview", open: overviewPage },
  { path: "runs", name: "Runs", open: runsPage },
  { path: "run", open: runPage, within: "runs" },
  { path: "compare", open: comparePage, within: "runs" },
  { path: "chat", name: "Chat", open: chatPage },
  { path: "approvals", name: "Approvals", open: approvalsPage },
  { path: "team", name: "Team", open: teamPage },
  { path: "statistics", name: "Statistics", open: statisticsPage },
  { path: "automation", name: "Automation", open: automationPage },
  { path: "memory", name: "Memory", open: memoryPage },
  { path: "dead-letters", name: "Dead letters", open: deadLettersPage },
  { path: "system", name: "System", open: systemPage },
];
const COUNTED = 100; // approvals, at most

const main = document.getElementById("main");
const links = new Map();
let close = null;

/** The address of a page, with parameters where they have a value. */
function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  return { name: name || "overview", parts, query: new URLSearchParams(query ?? "") };
}

function open() {
  close?.();
  close = null;
  const { name, parts, query } = parse();
  const page = PAGES.find((one) => one.path === name);
  for (const [path, link] of links) {
    if (path === (page?.within ?? name)) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  fill(main);
  window.scrollTo(0, 0);
  document.title = `${page?.name ?? "Run"} – Cadre`;
  if (!page) {
    fill(main, alert(`there is no page ${name}`));
    return;
  }
  close = page.open(main, { parts, query, setQuery: (changed) => setQuery(name, parts, changed) }) ?? null;
}

/** Keeps parameters in the address without opening the page anew. */
function setQuery(name, parts, changed) {
  const { query } = parse();
  for (const [key, value] of Object.entries(changed)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const path = [name, ...parts].map(encodeURIComponent).join("/");
  history.replaceState(null, "", `#/${path}${query.size ? `?${query}` : ""}`);
}

const waiting = h("span", { class: "count", hidden: true });
for (const { path, name } of PAGES) {
  if (!name) continue;
  const link = h("a", { href: `#/${path}` }, name, path === "approvals" && waiting);
  links.set(path, link);
  document.getElementById("nav").append(link);
}

watchFaults(document.querySelector("header.top"));
const linkState = document.getElementById("link-state");
poll(5, async (signal) => {
  const { approvals, next } = await get(`/v1/approvals?limit=${COUNTED}`, signal);
  waiting.hidden = !approvals.length;
  waiting.textContent = `${approvals.length}${next ? "+" : ""}`;
  waiting.setAttribute("aria-label", `${waiting.textContent} wait`);
}, (error) => {
  linkState.textContent = error ? `${error.message}; asking again` : "";
  linkState.className = error ? "bad" : "";
});

watchSignIn(document.querySelector("header.top"));
window.addEventListener("hashchange", open);
open();
