// Refreshes the page, filters its table, copies commands, and shows the values of a chart.
// Without this script everything on the page can still be read.
"use strict";

document.documentElement.classList.add("scripted");

function addCopyButtons(within) {
  for (const command of within.querySelectorAll("code.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy " + command.textContent);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        // Without HTTPS a browser refuses: select the text, so that a person can copy it.
        getSelection().selectAllChildren(command);
        button.textContent = "Selected";
      }
    });
    command.after(button);
  }
}

function addReadouts(within) {
  for (const chart of within.querySelectorAll(".chart")) {
    const svg = chart.querySelector("svg");
    const lines = JSON.parse(chart.dataset.lines);
    const times = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
    if (!times.length) continue;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    svg.append(cursor);
    const readout = document.createElement("output");
    readout.className = "readout";
    svg.after(readout);
    svg.tabIndex = 0;
    svg.setAttribute("aria-roledescription", "chart; arrow keys move through the values");
    let shown = times.length - 1;
    const show = (number) => {
      shown = Math.max(0, Math.min(times.length - 1, number));
      const at = times[shown];
      const found = lines.map((line) => [line.name, line.points.find((point) => point[0] === at)]).filter((each) => each[1]);
      if (found.length) cursor.setAttribute("d", "M" + found[0][1][1] + " 10V156");
      const values = found.map((each) => each[0].replaceAll("_", " ") + " " + each[1][3]).join(", ");
      readout.textContent = new Date(at * 1000).toLocaleString() + ": " + values;
    };
    svg.addEventListener("focus", () => show(shown));
    svg.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24, Home: -times.length, End: times.length };
      if (event.key in steps) {
        event.preventDefault();
        show(shown + steps[event.key]);
      }
    });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      let best = 0;
      let distance = Infinity;
      for (const line of lines) {
        for (const point of line.points) {
          if (Math.abs(point[1] - x) < distance) {
            distance = Math.abs(point[1] - x);
            best = times.indexOf(point[0]);
          }
        }
      }
      show(best);
    });
  }
}

function addFinder() {
  const find = document.getElementById("find");
  if (!find) return;
  find.addEventListener("input", () => {
    const wanted = find.value.toLowerCase();
    for (const row of document.querySelectorAll("#sessions tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
  for (const select of document.querySelectorAll(".filters select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
}

// A page that a person is reading is left alone: no refresh while something in it is focused,
// selected or opened.
function isInUse(main) {
  return (
    document.hidden ||
    main.contains(document.activeElement) && document.activeElement !== main ||
    !getSelection().isCollapsed ||
    main.querySelector("details[open], svg:hover") !== null
  );
}

async function refresh() {
  const main = document.getElementById("main");
  if (isInUse(main)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!fresh || isInUse(main)) return;
    main.replaceChildren(...fresh.childNodes);
    addCopyButtons(main);
    addReadouts(main);
  } catch {
    // The agent is restarting or gone; the next refresh tells.
  }
}

const main = document.getElementById("main");
addCopyButtons(main);
addReadouts(main);
addFinder();
if (main.dataset.refresh) setInterval(refresh, Number(main.dataset.refresh) * 1000);
