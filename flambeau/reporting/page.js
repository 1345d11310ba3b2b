"use strict";
// Everything on the page is made here of the data that stands in it. Words go in by textContent: none of them is HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const colour = i => `var(--s${i % 10})`;

function make(kind, attributes = {}, ...inside) {
  const one = kind in {svg: 1, path: 1, line: 1, text: 1, circle: 1, g: 1, rect: 1}
    ? document.createElementNS(SVG, kind) : document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) one.setAttribute(name, value);
  }
  one.append(...inside.filter(each => each !== null && each !== undefined));
  return one;
}
const section = id => document.getElementById(id);

// --- words ---
function scaled(value, units, base = 1000) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) { value /= base; at++; }
  return `${value >= 100 || at === 0 && Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3)} ${units[at]}`;
}
const bytes = value => scaled(value, ["B", "kB", "MB", "GB", "TB"]);
const amount = value => scaled(value, ["", "k", "M", "G", "T"]).trim();
function seconds(value) {
  if (value === 0) return "0";
  if (value >= 100) return `${Math.floor(value / 60)} min ${(value % 60).toFixed(0)} s`;
  return value >= 1 ? `${value.toPrecision(3)} s` : value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms`
    : `${(value * 1e6).toPrecision(3)} µs`;
}
const round = time => time >= 100 ? seconds(time) : seconds(time).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
const ofLimit = share => share > 1 ? "in cache" : percent(share);    // operations never are above; see machine.py
const percent = share => `${(share * 100).toFixed(share >= 0.1 ? 0 : 1)} %`;
const short = value => typeof value !== "number" ? String(value)
  : Math.abs(value) >= 1e6 || value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(4));

// --- what is under the finger or the mouse ---
const tip = make("div", {class: "tip", hidden: "", role: "status"});
document.body.append(tip);
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(4, Math.min(event.pageX + 14, room))}px`;
  tip.style.top = `${event.pageY + 16}px`;
}
const hideTip = () => { tip.hidden = true; };

// --- curves ---
const WIDE = 560, HIGH = 240, LEFT = 62, BOTTOM = 26, TOP = 12;
function ticks(low, high, most = 5) {                // round numbers from below `low` to above `high`
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = power * [1, 2, 5, 10].find(times => (high - low) / (power * times) <= most);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  return Array.from({length: last - first + 1}, (_, i) => +((first + i) * step).toPrecision(12));
}
function frame(low, high, end, words) {
  const values = ticks(low, high), times = ticks(0, end, 4).filter(time => time <= end);
  low = values[0];
  high = values[values.length - 1];
  const x = t => LEFT + (WIDE - LEFT - 8) * (end ? t / end : 0);
  const y = v => HIGH - BOTTOM - (HIGH - BOTTOM - TOP) * (high > low ? (v - low) / (high - low) : 0.5);
  const svg = make("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img"});
  for (const value of values)
    svg.append(make("line", {class: "axis", x1: LEFT, x2: WIDE - 8, y1: y(value), y2: y(value)}),
               make("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, words(value)));
  for (const time of times) {
    const place = !time ? "start" : x(time) > WIDE - 40 ? "end" : "middle";
    svg.append(make("text", {x: x(time), y: HIGH - 8, "text-anchor": place}, time ? round(time) : "0"));
  }
  return {svg, x, y};
}
function follow(svg, x0, x1, tell) {                 // the pointer's place along the axis, from 0 to 1
  const cursor = make("line", {class: "axis", y1: TOP, y2: HIGH - BOTTOM, visibility: "hidden"});
  svg.append(cursor);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = Math.min(Math.max(((event.clientX - box.left) / box.width * WIDE - x0) / (x1 - x0), 0), 1);
    cursor.setAttribute("x1", x0 + at * (x1 - x0));
    cursor.setAttribute("x2", x0 + at * (x1 - x0));
    cursor.setAttribute("visibility", "visible");
    showTip(event, tell(at));
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); });
}
function curve(series, number) {
  const points = series.points.filter(point => typeof point[2] === "number");
  const broken = series.points.filter(point => typeof point[2] !== "number");
  const values = points.map(point => point[2]);
  let low = Math.min(...values), high = Math.max(...values);
  if (!points.length) { low = 0; high = 1; }
  if (low >= 0 && low < high / 2) low = 0;
  const end = Math.max(...series.points.map(point => point[0]), 1e-9);
  const {svg, x, y} = frame(low, high, end, short);
  svg.setAttribute("aria-label", `${series.name}, from ${short(values[0])} to ${short(values[values.length - 1])}`);
  const path = points.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[2]).toFixed(1)}`).join("");
  svg.append(make("path", {d: path, fill: "none", stroke: colour(number), "stroke-width": 1.8}));
  for (const point of points.length < 40 ? points : [])
    svg.append(make("circle", {cx: x(point[0]), cy: y(point[2]), r: 2.6, fill: colour(number)}));
  let written = -Infinity;                            // where the last word stands: words would lie on each other
  for (const point of broken) {
    const at = x(point[0]);
    svg.append(make("line", {x1: at, x2: at, y1: TOP, y2: TOP + 6, stroke: "var(--bad)", "stroke-width": 1.8}));
    if (at - written < 34) continue;
    svg.append(make("text", {x: Math.min(at, WIDE - 20), y: TOP + 18, style: "fill: var(--bad)", "text-anchor": "middle"},
                    String(point[2])));
    written = at;
  }
  follow(svg, LEFT, WIDE - 8, at => {
    const near = series.points.reduce((a, b) => Math.abs(b[0] - at * end) < Math.abs(a[0] - at * end) ? b : a);
    return `${series.name} ${short(near[2])}\n${near[1] === null ? "" : `step ${near[1]}, `}${seconds(near[0])}`;
  });
  return make("figure", {},
    make("figcaption", {}, `${series.name}${broken.length ? `; ${broken.length} not finite` : ""}`), svg);
}

// --- memory over time, one area on the other ---
function areas(device) {
  const hidden = new Set(), end = device.times[device.times.length - 1] || 1e-9;
  const place = make("div"), legend = make("div", {class: "legend"});
  device.series.forEach((series, i) => legend.append(make("button", {type: "button", "aria-pressed": "true",
    onclick: event => {
      hidden.has(i) ? hidden.delete(i) : hidden.add(i);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(i)));
      draw();
    }}, make("i", {style: `background: ${colour(i)}`}), series.name)));
  function draw() {
    const shown = device.series.map((series, i) => hidden.has(i) ? series.values.map(() => 0) : series.values);
    const totals = device.times.map((_, t) => shown.reduce((sum, values) => sum + values[t], 0));
    const {svg, x, y} = frame(0, Math.max(...totals, 1), end, bytes);
    svg.setAttribute("aria-label", `memory of ${device.device} by line, at most ${bytes(device.peak)}`);
    let below = device.times.map(() => 0);
    shown.forEach((values, i) => {
      const above = below.map((sum, t) => sum + values[t]);
      const up = device.times.map((time, t) => `${t ? "L" : "M"}${x(time).toFixed(1)} ${y(above[t]).toFixed(1)}`);
      const down = device.times.map((time, t) => `L${x(time).toFixed(1)} ${y(below[t]).toFixed(1)}`).reverse();
      svg.append(make("path", {d: `${up.join("")}${down.join("")}Z`, fill: colour(i), "fill-opacity": 0.75}));
      below = above;
    });
    svg.append(make("line", {x1: x(device.peak_at), x2: x(device.peak_at), y1: TOP, y2: HIGH - BOTTOM,
                             stroke: "var(--bad)", "stroke-dasharray": "4 3"}),
               make("text", {x: x(device.peak_at) + (device.peak_at > end / 2 ? -5 : 5), y: TOP + 9,
                             "text-anchor": device.peak_at > end / 2 ? "end" : "start"}, `peak ${bytes(device.peak)}`));
    follow(svg, LEFT, WIDE - 8, at => {
      const t = device.times.reduce((best, time, i) => Math.abs(time - at * end) < Math.abs(device.times[best] - at * end)
        ? i : best, 0);
      const largest = device.series.map((series, i) => [series.name, shown[i][t]]).filter(one => one[1])
        .sort((a, b) => b[1] - a[1]).slice(0, 6);
      return [`${seconds(device.times[t])}: ${bytes(totals[t])}`, ...largest.map(one => `${one[0]}  ${bytes(one[1])}`)]
        .join("\n");
    });
    place.replaceChildren(svg);
  }
  draw();
  return make("figure", {class: "wide"}, place, legend);
}

// --- tables that can be sorted ---
function table(rows, all) {
  if (!rows.length) return make("p", {}, "None were seen.");
  const columns = all.filter(([, value], i) => i === 0 || rows.some(row => value(row)));        // none that says nothing
  let by = Math.min(1, columns.length - 1), down = true;
  const head = make("tr"), body = make("tbody");
  columns.forEach(([title, , , says], i) => head.append(make("th", {scope: "col", title: says},
    make("button", {type: "button", onclick: () => { down = by === i ? !down : i > 0; by = i; fill(); }}, title))));
  function fill() {
    const value = columns[by][1];
    const order = [...rows].sort((a, b) => {
      const left = value(a), right = value(b);
      const sign = typeof left === "string" ? left.localeCompare(right) : (left ?? -1) - (right ?? -1);
      return down ? -sign : sign;
    });
    [...head.children].forEach((cell, i) => i === by
      ? cell.setAttribute("aria-sort", down ? "descending" : "ascending") : cell.removeAttribute("aria-sort"));
    body.replaceChildren(...order.map(row => make("tr", {}, ...columns.map(([, value, words]) => {
      const found = value(row), shown = words ? words(found, row) : String(found);
      return make("td", {}, found === null || found === 0 && words ? "" : shown);
    }))));
  }
  fill();
  return make("div", {class: "scroll"}, make("table", {}, make("thead", {}, head), body));
}

// --- the source with the time of its lines ---
function sourceView(files, rows, alive) {
  const times = {}, kept = {};
  for (const row of rows) {
    const name = row.name.replace(" (backward)", "");
    times[name] = (times[name] || 0) + row.total;
  }
  for (const one of alive) kept[one.name] = (kept[one.name] || 0) + one.bytes;
  const most = Math.max(...Object.values(times), 1e-12), names = Object.keys(files);
  if (!names.length) return null;
  const spent = file => Object.entries(times).filter(([name]) => name.startsWith(`${file}:`))
    .reduce((sum, [, time]) => sum + time, 0);
  names.sort((a, b) => spent(b) - spent(a));
  const place = make("div", {class: "source", tabindex: "0"});
  const choice = make("select", {"aria-label": "file", onchange: () => show(choice.value)},
    ...names.map(name => make("option", {value: name}, name)));
  function show(file, line) {
    choice.value = file;
    place.replaceChildren(make("div", {class: "head"}, ...["time", "at peak", "line", ""].map(word =>
      make("span", {}, word))));
    files[file].forEach((text, i) => {
      const key = `${file}:${i + 1}`, time = times[key] || 0;
      place.append(make("div", {id: `line-${key}`, style: time ? `--share: ${(100 * time / most).toFixed(1)}%` : null,
                                class: i + 1 === line ? "at" : null},
        make("span", {}, time ? seconds(time) : ""), make("span", {}, kept[key] ? bytes(kept[key]) : ""),
        make("span", {}, String(i + 1)), make("span", {}, text || " ")));
    });
    const wanted = line ? place.children[line] : [...place.children].slice(1).reduce((best, one) =>
      (times[one.id.slice(5)] || 0) > (best ? times[best.id.slice(5)] || 0 : 0) ? one : best, null);
    if (wanted) place.scrollTop = wanted.offsetTop - place.offsetTop - place.clientHeight / 2;
  }
  return {box: make("div", {}, make("p", {}, choice), place), show, first: names[0]};
}
let source = null;
function lineLink(name) {
  const [file, line] = [name.replace(" (backward)", "").split(":").slice(0, -1).join(":"), Number(name.match(/:(\d+)/)?.[1])];
  if (!source || !(file in data.sources)) return name;
  return make("a", {class: "link", href: "#time", onclick: () => source.show(file, line)}, name);
}

// --- the sections ---
function placement() {
  const here = data.placement, place = section("placement");
  const cards = here.devices.map(one => make("div", {class: "card"}, make("strong", {}, one.device),
    make("p", {class: "faint"}, one.name),
    make("p", {}, `${percent(one.share)} of the computing time` +
      ` (${seconds(one.running)} in the steps that were looked at)`),
    make("p", {}, `${bytes(one.parameters)} of parameters, ${bytes(one.peak)} at the peak`)));
  if (data.error) place.append(make("div", {class: "problem bad"}, make("strong", {}, `The program ended with ${data.error.kind}`),
    make("pre", {}, data.error.text)));
  place.append(make("div", {class: "cards"}, ...cards));
  if (!cards.length) place.append(make("p", {}, "Nothing was computed while the report looked."));
  here.problems.forEach((text, i) => place.append(make("div", {class: `problem${here.idle && !i ? " bad" : ""}`}, text)));
  place.append(make("details", {}, make("summary", {}, "the machine, as flambeau doctor sees it"),
    make("pre", {}, here.facts.map(([label, text]) => `${label.padEnd(11)}${text}`).join("\n"))));
}
function time() {
  const place = section("time"), total = data.parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!total) { place.append(make("p", {}, "No time was measured.")); return; }
  place.append(make("p", {class: "faint"}, data.sampled.count
    ? `Of ${data.sampled.count} steps from step ${data.sampled.first} on: ${seconds(data.sampled.seconds)}.`
    : `Of the whole run: ${seconds(data.sampled.seconds)}.`));
  place.append(make("div", {class: "stack"}, ...data.parts.map((part, i) => make("span", {
    style: `flex: ${part.seconds / total} 1 0; background: ${colour(i)}`,
    onpointermove: event => showTip(event, `${part.name} ${percent(part.seconds / total)}, ${seconds(part.seconds)}\n${part.says}`),
    onpointerleave: hideTip}))),
    make("div", {class: "legend"}, ...data.parts.map((part, i) => make("span", {title: part.says},
      make("i", {style: `background: ${colour(i)}`}), `${part.name} ${percent(part.seconds / total)}`))));
  source = sourceView(data.sources, data.lines, data.memory.flatMap(device => device.alive));
  if (source) {
    place.append(make("h3", {}, "The source, with the time of its lines"), source.box);
    source.show(source.first);                       // not before: only what is on the page can be scrolled
  }
  const whole = [["line", row => row.name, name => lineLink(name)]];
  place.append(make("h3", {}, "Lines"), table(data.lines, [...whole, ...timeColumns(total)]),
    make("h3", {}, "Modules"), table(data.modules, [["module", row => row.name], ...timeColumns(total)]));
}
function timeColumns(total) {
  const columns = [["total", row => row.total, seconds], ["share", row => row.total / total, percent]];
  for (const name of ["recording", "preparing", "running", "copying", "waiting"])
    columns.push([name, row => row[name], seconds]);
  return [...columns, ["bytes", row => row.bytes, bytes], ["flops", row => row.flops, amount]];
}
function kernels() {
  const spent = row => row.running + row.copying;
  section("kernels").append(data.kernels.length ? table(data.kernels, [["kernel", row => row.name],
    ["time", spent, seconds], ["runs", row => row.count, amount], ["bytes", row => row.bytes, bytes],
    ["bandwidth", row => row.bytes / spent(row), value => `${bytes(value)}/s`, "bytes read and written, by the time of it"],
    ["flop/s", row => row.flops / spent(row), amount],
    ["of the limit", row => row.limit_share, ofLimit, "of what this machine can do at most, in bytes of memory or in " +
      "operations; what lies in the processor's caches is read faster than memory"],
    ["device", row => row.device]]) : make("p", {}, "No kernel ran while the report looked."));
}
function memoryOf() {
  const place = section("memory");
  if (!data.memory.length) place.append(make("p", {}, "No memory was recorded."));
  for (const device of data.memory) {
    place.append(make("h3", {}, `${device.device}: ${bytes(device.peak)} at the peak`), areas(device),
      make("p", {class: "faint"}, Object.entries(device.roles).map(([role, size]) => `${role} ${bytes(size)}`).join(" · ")),
      make("h3", {}, "Alive at the peak"), table(device.alive, [["line", row => row.name, name => lineLink(name)],
        ["bytes", row => row.bytes, bytes], ["buffers", row => row.count, amount], ["largest", row => row.largest]]));
  }
}
function findings() {
  const place = section("findings");
  if (!data.findings.length) place.append(make("p", {}, "Nothing was found."));
  for (const one of data.findings) place.append(make("div", {class: "problem"},
    make("p", {}, make("strong", {}, one.name), ` at `, lineLink(one.line), one.count > 1 ? `, ${one.count} times` : ""),
    one.source ? make("pre", {}, one.source) : null, make("p", {}, one.text),
    one.others.length ? make("p", {class: "faint"}, one.others.join("; ")) : null,
    one.cost ? make("p", {class: "faint"}, `cost: ${one.cost}`) : null, make("p", {}, `fix: ${one.fix}`)));
}

for (const one of document.querySelectorAll("section"))
  one.prepend(make("h2", {}, one.dataset.title));
for (const one of document.querySelectorAll("section"))
  section("sections").append(make("a", {href: `#${one.id}`}, one.dataset.title));
section("summary").textContent = `${data.when} · ${seconds(data.seconds)} · ${data.steps} optimizer steps`;
time();                                              // first: the others link to lines of its source
placement();
data.curves.length ? section("curves").append(make("div", {class: "charts"}, ...data.curves.map(curve)))
  : section("curves").append(make("p", {}, "No backward, and no optimizer step."));
findings();
memoryOf();
kernels();
if (!document.querySelector(".picture svg")) section("graph").append(make("p", {}, "No graph: there was no backward."));

// --- light or dark: as the system says, or as was chosen ---
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
function paint() { document.documentElement.dataset.theme = chosen ?? (prefersDark.matches ? "dark" : "light"); }
prefersDark.addEventListener("change", paint);
section("theme").addEventListener("click", () => {
  chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  paint();
});
paint();
