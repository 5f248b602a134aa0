// Refreshes the page, filters its table, copies commands, and shows the values of a chart.
// Without this script everything on the page can still be read.
"use strict";

document.documentElement.classList.add("scripted");

const SVG = "http://www.w3.org/2000/svg";
const main = document.getElementById("main");

function tell(text, bad = false) {
  const notice = document.getElementById("notice");
  notice.textContent = text;
  notice.classList.toggle("bad", bad);
}

// Copy buttons

async function copy(command) {
  try {
    await navigator.clipboard.writeText(command.textContent);
    return "Copied";
  } catch {
    // Without HTTPS a browser has no clipboard for scripts, but copies what is selected.
    getSelection().selectAllChildren(command);
    if (!document.execCommand("copy")) return "Selected";
    getSelection().removeAllRanges();
    return "Copied";
  }
}

function addCopyButtons(within) {
  for (const command of within.querySelectorAll("code.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy " + command.textContent);
    button.addEventListener("click", async () => {
      const done = await copy(command);
      button.textContent = done;
      tell(done + ": " + command.textContent);
    });
    command.after(button);
  }
}

// Values of charts

class Readout {
  constructor(chart) {
    this.data = JSON.parse(chart.dataset.lines);
    this.svg = chart.querySelector("svg");
    this.values = chart.querySelectorAll(".legend .value");
    this.newest = [...this.values].map((value) => value.textContent);
    this.when = chart.querySelector(".when");
    this.spoken = document.createElement("output");
    this.spoken.className = "unseen";
    this.mark = document.createElementNS(SVG, "g");
    this.svg.append(this.mark);
    this.svg.after(this.spoken);
    this.shown = this.data.at.length - 1;
    this.listen();
  }

  listen() {
    const svg = this.svg;
    svg.tabIndex = 0;
    svg.setAttribute("aria-roledescription", "chart; arrow keys move through the values");
    svg.addEventListener("focus", () => this.show(this.shown, true));
    svg.addEventListener("blur", () => this.clear());
    svg.addEventListener("pointerleave", () => this.clear());
    svg.addEventListener("pointermove", (event) => this.show(this.nearest(event)));
    svg.addEventListener("keydown", (event) => {
      const all = this.data.at.length;
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24, Home: -all, End: all };
      if (!(event.key in steps)) return;
      event.preventDefault();
      this.show(Math.max(0, Math.min(all - 1, this.shown + steps[event.key])), true);
    });
  }

  nearest(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.svg.viewBox.baseVal.width;
    let best = 0;
    this.data.x.forEach((each, number) => {
      if (Math.abs(each - x) < Math.abs(this.data.x[best] - x)) best = number;
    });
    return best;
  }

  show(number, aloud = false) {
    this.shown = number;
    const x = this.data.x[number];
    const cursor = document.createElementNS(SVG, "path");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("d", "M" + x + " 10V166");
    const dots = this.data.lines.map((line) => {
      const dot = document.createElementNS(SVG, "circle");
      dot.setAttribute("class", "dot");
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", line.y[number]);
      dot.setAttribute("r", 3);
      return dot;
    });
    this.mark.replaceChildren(cursor, ...dots);
    const at = new Date(this.data.at[number] * 1000);
    this.when.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    this.data.lines.forEach((line, place) => (this.values[place].textContent = line.text[number]));
    if (aloud) {
      const names = [...this.values].map((value) => value.parentElement.textContent.trim());
      this.spoken.textContent = this.when.textContent + ": " + names.join(", ");
    }
  }

  clear() {
    if (document.activeElement === this.svg) return;
    this.mark.replaceChildren();
    this.when.textContent = "";
    this.spoken.textContent = "";
    this.newest.forEach((text, place) => (this.values[place].textContent = text));
  }
}

function addReadouts(within) {
  for (const chart of within.querySelectorAll(".chart")) new Readout(chart);
}

// Filters of the list of sessions

function find() {
  const wanted = document.getElementById("find").value.toLowerCase();
  for (const row of document.querySelectorAll("#sessions tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
}

let asked = 0;

async function filter(form) {
  const given = [...new FormData(form)].filter(([name, value]) => name && value);
  const url = form.action + (given.length ? "?" + new URLSearchParams(given) : "");
  const mine = ++asked;
  const fresh = await loaded(url, "results");
  if (!fresh || mine !== asked) return; // a later choice is on its way
  document.getElementById("results").replaceChildren(...fresh.childNodes);
  history.replaceState(null, "", url);
  find();
}

function addFilters() {
  const form = document.querySelector(".filters");
  if (!form) return;
  form.addEventListener("change", (event) => {
    if (event.target.matches("select")) filter(form);
  });
  document.getElementById("find").addEventListener("input", find);
}

// Refresh

async function loaded(url, id) {
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error("status " + answer.status);
    tell("");
    return new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(id);
  } catch {
    tell("The agent does not answer. What you see is old.", true);
    return null;
  }
}

// A page that a person is reading is left alone: no refresh while something in it is focused,
// selected or opened.
function isInUse() {
  return (
    document.hidden ||
    (main.contains(document.activeElement) && document.activeElement !== main) ||
    !getSelection().isCollapsed ||
    main.querySelector("details[open], .chart svg:hover") !== null
  );
}

const PATIENCE_MILLISECONDS = 60_000;
let updated = Date.now();

async function refresh() {
  if (isInUse()) {
    const since = new Date(updated).toLocaleTimeString([], { timeStyle: "short" });
    if (Date.now() - updated > PATIENCE_MILLISECONDS) tell("As of " + since + "; no refresh while you use the page.");
    return;
  }
  const fresh = await loaded(location.href, "main");
  if (!fresh || isInUse()) return;
  updated = Date.now();
  main.replaceChildren(...fresh.childNodes);
  addCopyButtons(main);
  addReadouts(main);
}

addCopyButtons(main);
addReadouts(main);
addFilters();
if (main.dataset.refresh) setInterval(refresh, Number(main.dataset.refresh) * 1000);
