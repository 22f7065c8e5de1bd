// One column of results: cards in order of rank, ties marked as ties, and moves since the previous ranking.

import { aside, make, plural } from "./dom.js";

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

// The number of results in each tie; explored items are not part of the ranking.
function tieSizes(results) {
  const sizes = new Map();
  for (const result of results) if (!result.explored) sizes.set(result.tie, (sizes.get(result.tie) ?? 0) + 1);
  return sizes;
}

// The rank of each item, the same for all items of a tie. Explored items have none: they are not part of the ranking.
export function ranks(answer) {
  const first = new Map();
  const start = answer.results[0]?.rank ?? 1;
  return new Map(
    answer.results
      .filter((result) => !result.explored)
      .map((result, place) => {
        if (!first.has(result.distance)) first.set(result.distance, result.tie < start ? result.tie : place + start);
        return [result.id, first.get(result.distance)];
      }),
  );
}

// Ranks that each item moved up (negative: down); null for items that were not on the page before. The order within a tie
// means nothing, so no item moves within one.
export function moves(before, answer) {
  const moved = new Map();
  for (const [id, rank] of ranks(answer)) {
    if (!before.has(id)) moved.set(id, null);
    else if (before.get(id) !== rank) moved.set(id, before.get(id) - rank);
  }
  return moved;
}

export function summary(answer) {
  const sizes = [...tieSizes(answer.results).values()].filter((size) => size > 1);
  const tied = sizes.reduce((sum, size) => sum + size, 0);
  const explored = answer.results.filter((result) => result.explored).length;
  const ties = tied ? `${tied} of ${answer.results.length} tied, in ${plural(sizes.length, "group")}` : "no ties";
  return ties + (explored ? `; ${explored} explored` : "");
}

export function render(section, answer, { moved, liked, choose }) {
  const list = section.querySelector("ol");
  const boxes = new Map([...list.children].map((card) => [card.dataset.id, card.getBoundingClientRect()]));
  const focused = document.activeElement?.closest("li")?.dataset.id;
  const held = list.contains(document.activeElement);
  const sizes = tieSizes(answer.results);
  const ranked = ranks(answer);
  let previous = null;
  list.replaceChildren(
    ...answer.results.map((result) => {
      const size = result.explored ? 1 : sizes.get(result.tie);
      const joined = size > 1 && previous !== null && !previous.explored && previous.tie === result.tie;
      previous = result;
      return card(result, { size, joined, rank: ranked.get(result.id), move: moved.get(result.id), liked: liked.has(result.id), choose });
    }),
  );
  section.querySelector(".summary").textContent = summary(answer);
  if (held) {
    // The chosen card keeps the focus wherever it moved; if it left the page, the heading takes the focus.
    const again = [...list.children].find((child) => child.dataset.id === focused)?.querySelector("button");
    (again ?? section.querySelector("h2")).focus({ preventScroll: true });
  }
  if (!calm.matches && moved.size) slide(list, boxes);
}

function card(result, { size, joined, rank, move, liked, choose }) {
  const tied = size > 1;
  const name = result.title || `Item ${result.id}`;
  const state = [tied && "tied", joined && "joined", result.explored && "explored", liked && "liked", move !== undefined && "moved"];
  return make(
    "li",
    { class: `card ${state.filter(Boolean).join(" ")}`, "data-id": result.id },
    make(
      "button",
      { type: "button", onclick: () => choose(result), title: liked ? `${name}: undo` : `${name}: more like this`, "aria-pressed": String(liked) },
      picture(result, name),
      aside(`More like ${name}: `),
      make("span", { class: "name", "aria-hidden": "true" }, name),
      rankMark(result, rank, size),
      make("span", { class: "distance" }, aside(", distance "), distance(result.distance)),
      mark(move),
      liked ? make("span", { class: "like" }, make("span", { "aria-hidden": "true" }, "✓"), aside(", chosen")) : null,
    ),
    why(result),
  );
}

// Why a result stands higher than its distance puts it.
function why({ lifted }) {
  if (!lifted) return null;
  return make("p", { class: "lifted" }, lifted.pinned ? "pinned for " : "because somebody asked ", make("q", {}, lifted.query));
}

function rankMark(result, rank, size) {
  if (result.explored) return make("span", { class: "rank" }, aside("shown to "), "explore");
  const tie = size > 1;
  return make(
    "span",
    { class: "rank" },
    make("span", { "aria-hidden": "true" }, tie ? `=${rank}` : String(rank)),
    aside(tie ? `rank ${rank}, a tie of ${size}` : `rank ${rank}`),
  );
}

function mark(move) {
  if (move === undefined) return null;
  const [sign, words] =
    move === null ? ["new", "new here"] : move > 0 ? [`▲${move}`, `up ${move}`] : [`▼${-move}`, `down ${-move}`];
  const kind = move === null || move > 0 ? "up" : "down";
  return make("span", { class: `move ${kind}` }, make("span", { "aria-hidden": "true" }, sign), aside(`, ${words}`));
}

export function picture(result, name) {
  if (!result.image) return make("span", { class: "words", "aria-hidden": "true" }, name);
  const words = make("span", { class: "words", "aria-hidden": "true" }, name);
  const onerror = (event) => event.target.replaceWith(words);  // a picture that cannot be loaded
  return make("img", { src: result.image, alt: "", loading: "lazy", decoding: "async", width: 56, height: 56, onerror });
}

const distance = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2));

// Cards glide from their old places, so that the eye can follow.
function slide(list, boxes) {
  for (const item of list.children) {
    const from = boxes.get(item.dataset.id);
    const to = item.getBoundingClientRect();
    const [x, y] = from ? [from.left - to.left, from.top - to.top] : [0, 0];
    if (from && !x && !y) continue;
    const start = from ? { transform: `translate(${x}px, ${y}px)` } : { opacity: 0 };
    item.animate([start, { transform: "none", opacity: 1 }], { duration: 350, easing: "ease-out" });
  }
}
