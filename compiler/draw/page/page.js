const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const make = (tag, text, kind) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
};
const unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
};
const pictures = await Promise.all(data.pictures.map(unpacked));
const [MARK, TEXT, ORIGIN, NAME] = [0, 1, 2, 3];
const SHOWN = 8;    // lines of one moment in the history of an operation
for (const moment of data.moments) moment.lines = moment.lines.map(([mark, place]) => [mark, ...data.lines[place]]);
let at = 0;         // the pass that is shown
let line = -1;      // the line of IR that is selected

get("title").textContent = data.title;
data.moments.forEach((moment, i) => {
  const item = make("li", undefined, moment.changed ? "" : "same");
  item.id = `pass-${i}`;
  item.setAttribute("role", "option");
  item.append(make("span", moment.name), make("span", i ? `${moment.milliseconds.toFixed(1)} ms` : ""));
  item.onclick = () => show(i);
  get("passes").append(item);
});

function show(i) {
  at = i;
  line = -1;
  const moment = data.moments[i];
  [...get("passes").children].forEach((item, j) => item.setAttribute("aria-selected", i === j));
  get("passes").setAttribute("aria-activedescendant", `pass-${i}`);
  get(`pass-${i}`).scrollIntoView({ block: "nearest" });
  get("name").textContent = moment.name + moment.options;
  get("time").textContent = i ? `${moment.milliseconds.toFixed(1)} ms${moment.changed ? "" : ", changes nothing"}` : "";
  get("does").textContent = moment.does;
  showSteps(moment.steps);
  showCosts(i ? data.moments[i - 1].costs : {}, moment.costs);
  get("picture").innerHTML = pictures[moment.picture];
  for (const box of get("picture").querySelectorAll("[data-op]")) box.onclick = () => selectNamed(box.dataset.op);
  showLines(moment.lines);
  forget();
}

function showSteps(steps) {
  const list = get("steps");
  list.replaceChildren();
  for (const [rewrite, subject, law, reason] of steps) {
    const item = make("li");
    item.append(make("b", law || rewrite), `: ${subject} `, make("i", reason));
    list.append(item);
  }
  if (!steps.length) list.append(make("li", "nothing: no law was needed", "hint"));
}

function showCosts(before, after) {
  const body = get("costs").tBodies[0];
  body.replaceChildren();
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const row = make("tr");
    const changed = before[key] !== after[key] ? "other" : "";
    row.append(make("th", key), make("td", before[key] ?? ""), make("td", after[key] ?? "", changed));
    body.append(row);
  }
}

function showLines(lines) {
  const kinds = { "+": "new", "-": "gone", "=": "" };
  get("ir").replaceChildren(...lines.map((content, i) => {
    const element = make("div", content[TEXT] || " ", kinds[content[MARK]]);
    element.id = `line-${i}`;
    if (content[ORIGIN]) {
      element.classList.add("op");
      element.setAttribute("role", "option");
      element.onclick = () => select(i);
    }
    return element;
  }));
}

function forget() {
  get("history").replaceChildren(make("h3", "Operation"),
    make("p", "Click an operation to see where it came from and what it became.", "hint"));
}

function select(i) {
  line = i;
  const lines = data.moments[at].lines;
  const [, , origin, name] = lines[i];
  lines.forEach((content, j) => {
    const element = get(`line-${j}`);
    element.classList.toggle("at", j === i);
    element.classList.toggle("kin", content[ORIGIN] !== "" && content[ORIGIN] === origin);
    element.setAttribute("aria-selected", j === i);
  });
  get("ir").setAttribute("aria-activedescendant", `line-${i}`);
  get(`line-${i}`).scrollIntoView({ block: "nearest" });
  for (const box of get("picture").querySelectorAll(".box")) {
    box.classList.toggle("at", name !== "" && box.dataset.op === name);
  }
  tell(origin, name);
}

function tell(origin, name) {
  const history = get("history");
  const row = Number(origin.split(":")[0]);
  history.replaceChildren(make("h3", "Operation"), make("h4", `came from ${data.file}:${origin}`),
    make("button", (data.source[row - 1] ?? "").trim()));
  data.moments.forEach((moment, i) => {
    if (i && !moment.changed) return;
    const found = moment.lines.map((content, j) => [content, j])
      .filter(([content]) => content[ORIGIN] === origin && content[MARK] !== "-");
    if (!found.length) return;
    // One line of the program becomes hundreds of the last levels: those of the same name are nearest.
    found.sort((one, other) => (other[0][NAME] === name) - (one[0][NAME] === name));
    history.append(make("h4", i ? `after ${moment.name}` : moment.name, i === at ? "here" : ""));
    for (const [content, j] of found.slice(0, SHOWN)) {
      const button = make("button", content[TEXT].trim());
      button.title = content[TEXT].trim();
      button.onclick = () => { show(i); select(j); };
      history.append(button);
    }
    if (found.length > SHOWN) history.append(make("p", `and ${found.length - SHOWN} more`, "hint"));
  });
}

function selectNamed(name) {
  const i = data.moments[at].lines.findIndex((content) => content[NAME] === name && content[MARK] !== "-");
  if (i >= 0) select(i);
}

function moveLine(by) {
  const lines = data.moments[at].lines;
  const shown = (content) => content[ORIGIN] && (content[MARK] !== "-" || get("removed").checked);
  for (let i = line + by; i >= 0 && i < lines.length; i += by) if (shown(lines[i])) return select(i);
}

get("removed").onchange = () => get("ir").classList.toggle("removed", get("removed").checked);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const on = document.activeElement?.id;
  const last = data.moments.length - 1;
  const next = () => show(Math.min(at + 1, last));
  const previous = () => show(Math.max(at - 1, 0));
  const act = {
    j: next, k: previous, d: () => get("removed").click(),
    ArrowDown: on === "ir" ? () => moveLine(1) : on === "passes" ? next : null,
    ArrowUp: on === "ir" ? () => moveLine(-1) : on === "passes" ? previous : null,
    Home: on === "passes" ? () => show(0) : null,
    End: on === "passes" ? () => show(last) : null,
    Enter: on === "ir" && line >= 0 ? () => get("history").querySelector("button")?.focus() : null,
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
show(0);
get("passes").focus();
