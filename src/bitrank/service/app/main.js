// The state of the page and its events: a search fills both columns; a choice is sent, and the ranking follows.

import * as api from "./api.js";
import { qualityChart, weightsChart } from "./charts.js";
import { find, make, plural } from "./dom.js";
import { parse } from "./filter.js";
import { moves, picture, ranks, render } from "./results.js";
import { showGain } from "./gain.js";
import { Sketch } from "./sketch.js";
import { versionsTable } from "./versions.js";

const page = { collection: null, profile: "default", ask: null, answers: {}, liked: new Map(), unsent: [], filter: undefined, offset: 0 };
const sketch = new Sketch(find("draw"));
const form = find("search");

// ---- Messages

let said = false; // whether the action under way has said something

function say(text) {
  said = true;
  find("status").textContent = text;
}

function complain(error) {
  const known = error instanceof api.ServiceError;
  if (!known) console.error(error);
  find("error").textContent = known ? error.message : "Something went wrong on this page; see the console.";
  find("error").hidden = false;
}

// Runs one action at a time, in the order of the clicks, and shows errors.
let last = Promise.resolve();
function act(action) {
  last = last.then(async () => {
    find("error").hidden = true;
    document.body.setAttribute("aria-busy", "true");
    said = false;
    const before = find("status").textContent;
    const slow = setTimeout(() => said || (find("status").textContent = "Working …"), 400);
    try {
      await action();
    } catch (error) {
      complain(error);
    } finally {
      clearTimeout(slow);
      if (!said) find("status").textContent = before;
      document.body.removeAttribute("aria-busy");
    }
  });
  return last;
}

// ---- Searching

// `ask(options)` runs the query. It is kept, so that the query can run again when the weights have changed.
async function search(ask) {
  await send().catch(complain);
  const liked = new Map();
  const [hamming, learned] = await Promise.all([ask({ profile: "hamming", explore: 0, ...part() }), ask(learnedBy(liked))]);
  Object.assign(page, { ask, answers: { hamming, learned }, liked });
  await showQuery(learned.query);
  show("hamming", new Map());
  show("learned", new Map());
  offer();
  find("previous").hidden = !page.offset;
  find("next").hidden = learned.results.length < page.collection.page_size;
  say(`${plural(learned.results.length, "result")}${page.offset ? ` from ${page.offset + 1}` : ""} for ${find("query-title").textContent}.`);
}

// With "your choices" every choice counts at once: in the candidate, and in weights adapted to this query. The active
// version has passed the gate.
function learnedBy(liked) {
  const version = find("which").value;
  return { profile: page.profile, explore: page.collection.explore, ...part(), ...(version && { version, chosen: [...liked.keys()].slice(-20) }) };
}

// The part of the results that is shown.
function part() {
  return { ...(page.filter && { filter: page.filter }), ...(page.offset && { offset: page.offset }) };
}

function turn(by) {
  return act(async () => {
    page.offset = Math.max(0, page.offset + by * page.collection.page_size);
    await search(page.ask);
  });
}

function show(column, moved) {
  const answer = page.answers[column];
  render(find(column), answer, { moved, liked: page.liked, choose: (result) => act(() => (column === "learned" && find("pinning").checked ? pin(result) : choose(column, result))) });
}

// An operator's word: these items first for this query, or no longer.
async function pin(result) {
  const pinned = Boolean(result.lifted?.pinned);
  await api.judge(page.answers.learned.query.code, result.id, pinned ? 0 : 1);
  await search(page.ask);
  say(pinned ? "Taken back." : "Pinned: first for this query from now on.");
}

function offer() {
  find("teach").hidden = !page.liked.size;
  find("teach").textContent = `Send ${plural(page.liked.size, "choice")}`;
  find("these").hidden = !page.liked.size;
}

async function showQuery(query) {
  const known = query.item === null ? null : await api.item(query.item);
  const name = known ? known.title || `Item ${known.id}` : page.asked;
  find("query-title").textContent = name;
  find("query-code").textContent = query.code;
  find("query-picture").replaceChildren(...(known?.image ? [picture(known, name)] : page.preview ? [page.preview] : []));
  find("query").hidden = false;
}

async function runQuery(query) {
  page.asked = query.code === undefined ? `Item ${query.item}` : "A code";
  page.preview = null;
  await search((options) => api.search(query, { k: page.collection.page_size, ...options }));
}

function searchBy(query) {
  return act(async () => {
    narrow();
    await runQuery(query);
    history.pushState(null, "", address(query));
  });
}

// Reads the filter; the next results are the first.
function narrow() {
  page.offset = 0;
  page.filter = parse(find("filter").value);
}

function address(query) {
  const parts = new URLSearchParams(query);
  if (page.filter) parts.set("filter", find("filter").value);
  if (page.profile !== "default") parts.set("profile", page.profile);
  return `?${parts}`;
}

// Asks for what is like all chosen results; what others are shown does not change by it.
async function searchByExamples() {
  const positives = [...page.liked.keys()];
  page.asked = plural(positives.length, "example");
  page.preview = null;
  page.offset = 0;
  await search((options) => api.search({ positives }, { k: page.collection.page_size, ...options }));
}

async function searchByPicture() {
  const file = find("file").files[0];
  if (!file && sketch.empty) throw new api.ServiceError(0, "Choose a picture or draw one first.");
  narrow();
  const blob = file ?? (await sketch.picture());
  page.asked = file ? file.name : "Your drawing";
  page.preview = await preview(blob);
  await search((options) => api.searchImage(blob, { k: page.collection.page_size, ...options }));
}

// A canvas needs no URL, so the policy for images can stay strict.
async function preview(blob) {
  const canvas = make("canvas", { width: 112, height: 112 });
  const bitmap = await createImageBitmap(blob).catch(() => null);
  if (bitmap === null) throw new api.ServiceError(0, "The browser cannot read this file as a picture.");
  const scale = 112 / Math.max(bitmap.width, bitmap.height);
  const [width, height] = [bitmap.width * scale, bitmap.height * scale];
  canvas.getContext("2d").drawImage(bitmap, (112 - width) / 2, (112 - height) / 2, width, height);
  return canvas;
}

// ---- Learning

// A choice is kept until the query is left: all items chosen in a column are one answered page. A second click undoes it.
async function choose(column, result) {
  const name = result.title || `item ${result.id}`;
  const undone = page.liked.delete(result.id);
  if (!undone) page.liked.set(result.id, column);
  await follow(undone ? `No longer chosen: ${name}` : `More like ${name}`);
}

// Sends what was chosen, one page per column; what cannot be sent now is sent later. A page counts once, so it is safe
// to send it again when no answer came.
async function send({ keepalive = false } = {}) {
  for (const column of ["hamming", "learned"]) {
    const clicked = [...page.liked.keys()].filter((id) => page.liked.get(id) === column);
    if (clicked.length) page.unsent.push({ page_token: page.answers[column].page_token, clicked, profile: page.profile });
  }
  page.liked = new Map();
  let n_pages = 0;
  while (page.unsent.length) {
    try {
      ({ n_pages } = await api.feedback(page.unsent[0], keepalive));
    } catch (error) {
      if (error.status === 0 || error.status === 503) throw error;
      page.unsent.shift();
      throw error;
    }
    page.unsent.shift();
  }
  return n_pages;
}

async function teach() {
  await untilLearned(await send());
  await search(page.ask);
  await inspect();
  say("Your choices are sent.");
}

// The service learns in the background, a moment after a page is logged. Do not wait for a learner that is far behind.
async function untilLearned(n_pages) {
  for (let tries = 0; tries < 40; tries++) {
    if ((await api.candidate(page.profile)).n_learned >= n_pages) return;
    await new Promise((done) => setTimeout(done, 50));
  }
}

// Runs the query again and marks what moved.
async function follow(cause) {
  const before = page.answers.learned;
  page.answers.learned = await page.ask({ ...learnedBy(page.liked), continues: before.page_token });
  const moved = moves(ranks(before), page.answers.learned);
  show("hamming", new Map());
  show("learned", moved);
  offer();
  const fresh = [...moved.values()].filter((move) => move === null).length;
  say(`${cause}: ${moved.size ? `${plural(moved.size - fresh, "item")} moved, ${fresh} new on the page` : "the ranking is unchanged"}.`);
  await inspect();
}

// ---- Weights, quality, versions

async function inspect() {
  const [listed, quality] = await Promise.all([api.versions(page.profile), api.quality(page.profile)]);
  await showWeights(find("which").value || listed.active);
  qualityChart(find("quality"), quality);
  versionsTable(find("versions"), listed.versions, {
    show: ({ number }) => act(() => showWeights(number)),
    activate: ({ number }) =>
      act(async () => {
        await api.activate(page.profile, number);
        find("which").value = "";
        await follow(`Version ${number} is active`);
      }),
  });
  const back = find("rollback");
  back.disabled = listed.rollback_to === null;
  await gain();
  back.textContent = back.disabled ? "Roll back" : `Roll back to version ${listed.rollback_to}`;
}

// A query that nobody has answered yet, before and after: what was learned holds beyond the clicks.
function gain() {
  return showGain(find("gain"), page.profile, find("which").value);
}

async function showWeights(which) {
  const live = which === "candidate";
  const { weights } = live ? await api.candidate(page.profile) : await api.version(page.profile, which);
  weightsChart(find("weights"), weights, live ? "Live candidate" : `Version ${which}`);
}

// ---- Wiring

function mode() {
  const chosen = form.elements.mode.value;
  for (const part of form.querySelectorAll(".by")) part.hidden = part.dataset.mode !== chosen;
}

form.addEventListener("change", mode);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = form.elements.mode.value;
  const text = chosen === "picture" ? null : find(chosen).value.trim();
  if (chosen === "picture") act(searchByPicture);
  else if (text === "") act(async () => { throw new api.ServiceError(0, chosen === "item" ? "Enter the number of an item first." : "Enter a code first."); });
  else searchBy(chosen === "item" ? { item: Number(text) } : { code: text });
});
find("random").addEventListener("click", () =>
  act(async () => {
    const offset = Math.floor(Math.random() * page.collection.n_items);
    const [item] = (await api.items(offset, 1)).items;
    if (item) searchBy({ item: item.id });
  }),
);
find("previous").addEventListener("click", () => turn(-1));
find("next").addEventListener("click", () => turn(1));
find("teach").addEventListener("click", () => act(teach));
find("these").addEventListener("click", () => act(searchByExamples));
find("clear").addEventListener("click", () => sketch.clear());
// The last of the two counts: a drawing takes the place of a file, and a file that of a drawing.
find("file").addEventListener("change", () => find("file").files.length && sketch.clear());
find("draw").addEventListener("pointerdown", () => (find("file").value = ""));
find("another").addEventListener("click", () => act(gain));
find("rollback").addEventListener("click", () =>
  act(async () => {
    const { version } = await api.rollback(page.profile);
    find("which").value = "";
    await follow(`Rolled back to version ${version}`);
  }),
);
find("which").addEventListener("change", () => act(() => follow(find("which").selectedOptions[0].textContent)));
find("profile").addEventListener("change", (event) => {
  act(async () => {
    await send().catch(complain);
    page.profile = event.target.value;
    const parts = new URLSearchParams(location.search);
    parts.set("profile", page.profile);
    history.replaceState(null, "", `?${parts}`);
    if (page.ask) await search(page.ask);
    await inspect();
  });
});
window.addEventListener("popstate", () => fromAddress());
window.addEventListener("pagehide", () => send({ keepalive: true }).catch(() => {}));
window.addEventListener("pageshow", (event) => event.persisted && fromAddress());

// Runs the query in the address, else searches by the first item of the collection.
const fromAddress = () => act(searchFromAddress);

async function searchFromAddress() {
  const asked = new URLSearchParams(location.search);
  find("filter").value = asked.get("filter") ?? "";
  narrow();
  if (asked.has("code")) return runQuery({ code: asked.get("code") });
  if (asked.has("item")) return runQuery({ item: Number(asked.get("item")) });
  const [first] = (await api.items(0, 1)).items;
  return first ? runQuery({ item: first.id }) : say("The collection is empty.");
}

function start() {
  return act(async () => {
    const [collection, profiles] = await Promise.all([api.collection(), api.profiles()]);
    page.collection = collection;
    const wanted = new URLSearchParams(location.search).get("profile") ?? "default";
    const known = profiles.some(({ name }) => name === wanted && name !== "hamming");
    page.profile = known ? wanted : "default";
    find("collection").textContent = `${collection.name}: ${plural(collection.n_items, "item")}, ${collection.n_bits} bits`;
    find("code-label").textContent = `Code: ${Math.ceil(collection.n_bits / 8) * 2} hex digits, or base64`;
    find("narrow").hidden = !collection.columns.length;
    find("filter-label").textContent = `Filter: conditions joined by “and” on ${collection.columns.join(", ")}`;
    find("mode-picture").hidden = !collection.image_search;
    find("profile").replaceChildren(
      ...profiles.filter(({ name }) => name !== "hamming").map(({ name }) => make("option", { selected: name === page.profile }, name)),
    );
    await inspect();
    await searchFromAddress();
    if (!known) throw new api.ServiceError(404, `There is no profile “${wanted}”: this is the default one.`);
  });
}

start();
