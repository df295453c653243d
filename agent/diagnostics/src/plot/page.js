"use strict";
// The picture stands without this; it adds explanations at the pointer, zoom, and names to single out.
const svg = document.querySelector("svg.diagnostics");
const plots = [...svg.querySelectorAll("svg.plot")];
const tip = document.getElementById("tip");
const UNITS = 1e7, ZOOM_MAX = 1e5;
const seconds = Number(svg.dataset.seconds);
let left = 0, width = UNITS;

// The least of 1, 2 and 5 times a power of ten that is at least `step`.
function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map(factor => factor * power).find(nice => nice >= step * 0.999999);
}

function show(newLeft, newWidth) {
  width = Math.min(UNITS, Math.max(UNITS / ZOOM_MAX, newWidth));
  left = Math.min(UNITS - width, Math.max(0, newLeft));
  const step = niceStep(seconds * width / UNITS / 8);
  const decimals = Math.min(9, Math.max(0, -Math.floor(Math.log10(step))));
  const ticks = [];
  for (let index = Math.ceil(left / UNITS * seconds / step); index * step <= (left + width) / UNITS * seconds; index++) {
    ticks.push(index * step);
  }
  let plotWidth = 0;
  for (const plot of plots) {
    plotWidth = plot.width.baseVal.value;
    const height = plot.height.baseVal.value;
    plot.setAttribute("viewBox", `${left} 0 ${width} ${height}`);
    const grid = plot.querySelector(".grid");
    if (grid) grid.setAttribute("d", ticks.map(tick => `M${tick / seconds * UNITS} 0V${height}`).join(""));
  }
  const labels = ticks.map(tick => {
    const label = document.createElementNS(svg.namespaceURI, "text");
    label.setAttribute("x", (tick / seconds * UNITS - left) / width * plotWidth);
    label.setAttribute("y", 16);
    label.textContent = tick.toFixed(decimals);
    return label;
  });
  svg.querySelector(".ticks").replaceChildren(...labels);
}

function zoom(factor, at = left + width / 2) {
  const newWidth = Math.min(UNITS, Math.max(UNITS / ZOOM_MAX, width * factor));
  show(at - (at - left) * newWidth / width, newWidth);
}

function unitsAt(plot, event) {
  const box = plot.getBoundingClientRect();
  return left + (event.clientX - box.left) / box.width * width;
}

// Explanations. The browser's own come late and cannot be styled: each is taken over at first sight.
svg.addEventListener("pointermove", event => {
  const shape = event.target.closest("rect,text");
  const title = shape?.querySelector("title");
  if (title) {
    shape.dataset.tip = title.textContent;
    title.remove();
  }
  const text = shape?.dataset.tip;
  tip.hidden = !text || drag !== null;
  if (tip.hidden) return;
  tip.textContent = text;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const y = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : event.clientY + 18;
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
});
svg.addEventListener("pointerleave", () => { tip.hidden = true; });

let drag = null;
for (const plot of plots) {
  plot.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(Math.exp((event.deltaY || event.deltaX) * 0.002), unitsAt(plot, event));
  }, {passive: false});
  plot.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    drag = unitsAt(plot, event);
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", event => {
    if (drag !== null) show(left + drag - unitsAt(plot, event), width);
  });
  for (const end of ["pointerup", "pointercancel"]) plot.addEventListener(end, () => { drag = null; });
  plot.addEventListener("dblclick", event => zoom(0.5, unitsAt(plot, event)));
}

const actions = {in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, UNITS)};
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", actions[button.dataset.zoom]);
}

// A click on a name fades the others; another click brings them back.
let single = null;
for (const name of svg.querySelectorAll(".name")) {
  name.addEventListener("click", () => {
    single = single === name.dataset.name ? null : name.dataset.name;
    for (const part of svg.querySelectorAll("[data-name]")) {
      part.classList.toggle("faded", single !== null && part.dataset.name !== single);
    }
  });
}
