// The review page: the list of cases, one response, its rubric. The server decides what may be seen.

import { $, el, fill, say } from "./dom.js";
import { Outbox, ask, uuid } from "./outbox.js";
import { Queue } from "./queue.js";
import { drawResponse, panel } from "./response.js";
import { drawRubric, touchRubric } from "./rubric.js";
import {
  CANNOT, called, canSettle, choices, drafts, idOf, isApart, isClosed, isSilent, isUnstored, lastAct, mine, nameOf, opened,
  page, placeOf, remember, wasShown, worded,
} from "./state.js";

const REFRESH = 30000, PAUSE = 3000;               // ms between looks at the list; before asking again after a failure
const queue = new Queue($("list"), row => open(row.number, page.adjudicating));
const on = { mark, cast, comment, saveComment, settle, submit, undo, onward };
let visit = 0, drawn = -1;

// ---- talking to the server
async function refresh() {
  try {
    const list = await ask(`/api/cases?adjudicating=${page.adjudicating}`);
    if (list.adjudicating !== page.adjudicating) return;  // another request is on its way
    page.list = list;
    count();
    drawFrame();
  } catch (error) { if (error.status === 401) begin(); }
}

async function go(number, adjudicating = false, focus = 0) {
  const now = ++visit;
  if (number !== page.at) page.view = null;        // nothing typed now is about the case before
  page.at = number;
  const known = new Set(page.log.filter(act => !isUnstored(act)).map(act => act.act_id));
  drawFrame();
  try {
    const fresh = await ask(`/api/cases/${number}?adjudicating=${adjudicating}`);
    if (now !== visit) return;
    if (nameOf(fresh) !== nameOf(page.list.cases[number])) return location.reload();  // the server has another queue now
    page.view = { ...fresh, third: adjudicating && fresh.sees_people && fresh.submission === null };
  } catch (error) {
    if (now === visit) drawProblem(error, () => go(number, adjudicating, focus));
    return;
  }
  page.log = page.log.filter(act => nameOf(act) !== nameOf(page.view) || !known.has(act.act_id));
  if (page.view.sees_machine) remember();
  page.list.cases[number].why = page.view.why;
  page.crit = Math.max(0, Math.min(page.view.asked.length - 1, focus));
  draw();
  if (drawn !== number) document.querySelectorAll("main, #rubric").forEach(pane => pane.scrollTop = 0);
  drawn = number;
}

async function open(number, adjudicating = false) {  // a case, at what is to be done there
  await go(number, adjudicating);
  const { view } = page;
  if (!view) return;
  const state = mine();
  focusOn(Math.max(0, view.asked.findIndex(one => adjudicating ? isApart(one, state) : !state.votes.get(idOf(one)))));
  say(`${view.response_id}. ${view.why ?? "Second rating, blind"}.`);
}

async function reload() {                          // the same case as the server sees it now, at the same place
  await go(page.at, page.view.third || page.adjudicating, page.crit);
  if (page.view?.sees_people && $("outcome")) say($("outcome").textContent);
}

function send(kind, fields = {}) {
  const { subject_kind, response_id } = page.view;
  const act = { act_id: uuid(), kind, subject_kind, response_id, rater: page.me, ...fields };
  page.refusal = "";
  page.log.push(act);
  page.made.push(act);
  page.outbox.add(act);
  count();
}

function stored(act) {
  if (act.kind === "vote" || !page.view) return;
  refresh();
  if (nameOf(act) === nameOf(page.view)) reload();
}

function refused(act, reason) {
  for (const acts of ["log", "made"]) page[acts] = page[acts].filter(one => one.act_id !== act.act_id);
  page.refusal = `Not stored: ${reason}`;
  say(page.refusal);
  refresh();
  if (page.view && nameOf(act) === nameOf(page.view)) reload();
}

// ---- frame and list
function count() {                                 // what the reviewer has done here goes into the list at once
  if (!page.view) return;
  const state = mine(), voted = [...state.votes.values()].filter(Boolean).length;
  Object.assign(page.list.cases[page.at], { voted, submitted: state.submitted });
}

function drawFrame() {
  const { list, outbox, adjudicating } = page, lost = new Set(outbox.acts.map(nameOf));
  const waiting = list.cases.filter(row => row.conflicts), done = row => row.submitted ? "done" : `${row.voted} of ${row.asked}`;
  const shown = list.cases.map((row, number) => ({
    number, conflicts: row.conflicts, id: row.response_id, lost: lost.has(nameOf(row)),
    state: lost.has(nameOf(row)) ? "not stored" : adjudicating ? `${row.conflicts} of ${row.asked}` : done(row),
    why: adjudicating ? "Reviewers disagree" : row.why ?? (row.second ? "Second rating, blind" : "Not opened yet") }));
  queue.show(adjudicating ? shown.filter(row => row.conflicts) : shown, page.at);
  $("conflicts").textContent = list.adjudicating || waiting.length ? `To adjudicate ${waiting.length}` : "To adjudicate";
  $("waiting").setAttribute("aria-pressed", String(!adjudicating));
  $("conflicts").setAttribute("aria-pressed", String(adjudicating));
  const sum = field => list.cases.reduce((total, row) => total + Number(row[field]), 0);
  $("bar").value = sum("voted") / (sum("asked") || 1);
  $("done").textContent = `${sum("submitted")} of ${list.cases.length} cases, ${sum("voted")} of ${sum("asked")} votes`;
  $("stored").className = outbox.acts.length || page.refusal ? "lost" : "mute";
  $("stored").textContent = page.refusal || storing();
}

function storing() {
  const { acts, problem } = page.outbox;
  if (acts.length) return `${acts.length} not stored${problem ? `: ${problem}, trying again` : " yet"}`;
  return page.made.length || page.list.latest.length ? "Everything stored" : "";
}

function draw() {
  drawFrame();
  keepingFocus(() => { drawResponse(focusOn); drawRubric(on); });
}

function keepingFocus(draws) {
  const held = document.activeElement, box = held?.closest("main, #rubric");
  if (!box) return draws();
  const all = () => [...box.querySelectorAll("button, a, input, textarea, summary")];
  const place = all().indexOf(held), range = [held.selectionStart, held.selectionEnd];
  draws();
  const same = held.id ? $(held.id) ?? $("outcome") : all()[place];
  same?.focus({ preventScroll: true });
  if (same?.matches("textarea")) same.setSelectionRange(...range);
}

function drawProblem(error, again) {
  if (!error.status) setTimeout((number => () => { if (page.at === number) again(); })(page.at), PAUSE);
  if (page.view && !error.status) return;          // what is on the page stays there while the server is away
  page.view = null;
  fill($("rubric"));
  fill($("main"), el("p", { class: "lost" }, `This case cannot be shown: ${error.status ? error.message : "no answer from the server"}.`),
    el("button", { class: "plain", onclick: again }, "Try again"));
}

function mark(i) {                                 // the current criterion
  if (page.crit === i && $(`c${i}`)?.classList.contains("now")) return;
  page.crit = i;
  page.view.asked.forEach((_, k) => $(`c${k}`)?.classList.toggle("now", k === i));
  keepPlace();
}

function focusOn(i) {
  if (i < page.view.asked.length) mark(i);
  const box = $(`c${i}`);
  (box?.querySelector("[tabindex='0']") ?? box)?.focus({ preventScroll: true });
  box?.scrollIntoView({ block: "nearest" });
}

let placing;
function keepPlace() {                             // browsers take an address that changes too often amiss
  clearTimeout(placing);
  const { subject_kind, response_id } = page.view;
  const place = () => history.replaceState(null, "", `#${subject_kind}/${encodeURIComponent(response_id)}/${page.crit}`);
  placing = setTimeout(place, 200);
}

// ---- acts
function cast(value) {
  const { view, crit } = page, one = view.asked[crit], state = mine();
  if (canSettle(one, state)) {
    choices.set(placeOf(one), value);
    return comment(crit);
  }
  if (isClosed(state)) return say(view.third ? "This one is not in dispute." : "Submitted already; u takes that back.");
  const old = state.votes.get(idOf(one)), text = (drafts.get(placeOf(one)) ?? old?.comment ?? "").trim();
  if (old?.value !== value || (old.comment ?? "") !== text) vote(one, value, text);
  if (view.grader && value !== CANNOT) panel.vote(nameOf(view), view.grader, one.criterion_id, Number(value));
  const votes = mine().votes, open = view.asked.map((_, i) => i).filter(i => !votes.get(idOf(view.asked[i])));
  const next = open.find(i => i > crit) ?? open[0] ?? -1;
  drawFrame();
  drawRubric(on);
  say(`${called(one)}: ${worded(value)}. ${next < 0 ? "All voted; s submits." : `Next: ${called(view.asked[next])}.`}`);
  if (value === CANNOT && !text) comment(crit);
  else if (next < 0) $("submit").focus();
  else focusOn(next);
}

function vote(one, value, comment) {
  drafts.delete(placeOf(one));
  send("vote", { criterion_id: one.criterion_id, value, comment: comment || null, digest: one.digest, shown: wasShown() });
}

function comment(i) {
  opened.add(placeOf(page.view.asked[i]));
  mark(i);
  drawRubric(on);
  $(`note${i}`)?.focus();
}

function saveComment(one) {                        // a comment is part of the vote, so the vote is given again with it
  const old = mine().votes.get(idOf(one)), text = (drafts.get(placeOf(one)) ?? "").trim();
  if (old && (old.comment ?? "") !== text) vote(one, old.value, text);
  if (old) drafts.delete(placeOf(one));
}

function submit() {
  const { view, crit } = page, state = mine(), votes = view.asked.map(one => state.votes.get(idOf(one)));
  if (isClosed(state)) return canSettle(view.asked[crit], state) ? settle(crit) : say("Submitted already.");
  const missing = votes.findIndex(one => !one), silent = votes.findIndex(isSilent);
  if (missing >= 0) {
    focusOn(missing);
    return say(`${called(view.asked[missing])} has no vote yet.`);
  }
  if (silent >= 0) {
    comment(silent);
    return say("Say in the comment why it cannot be judged.");
  }
  send("submit");
  if (!view.second) return onward();
  draw();                                          // a second rating stays, so that both can be compared
  $("outcome").focus({ preventScroll: true });
  $("outcome").parentNode.scrollIntoView({ block: "nearest" });
}

function settle(i) {
  const one = page.view.asked[i], value = choices.get(placeOf(one)), text = (drafts.get(placeOf(one)) ?? "").trim();
  if (!value) {
    focusOn(i);
    return say("Choose what it is settled at.");
  }
  if (!text) {
    comment(i);
    return say("Say what the discussion came to.");
  }
  drafts.delete(placeOf(one));
  send("adjudicate", { criterion_id: one.criterion_id, value, comment: text, digest: one.digest, shown: true });
  draw();
  const state = mine(), next = page.view.asked.findIndex(other => isApart(other, state));
  if (next >= 0) focusOn(next);
  else $("outcome")?.focus();
  say(`${called(one)} settled: ${worded(value)}.`);
}

async function undo() {
  const last = lastAct(), number = last && (last.case ?? page.list.cases.findIndex(row => nameOf(row) === nameOf(last)));
  if (!last || number < 0) return say("There is nothing to take back.");
  if (number !== page.at || !page.view) await go(number, last.kind === "adjudicate");
  const { view } = page;
  if (!view) return;
  send("undo", { undoes: last.act_id });
  const i = last.kind === "submit" ? -1 : view.asked.findIndex(one => idOf(one) === idOf(last)), one = view.asked[i];
  if (one) for (const held of [opened, drafts]) held.delete(placeOf(one));
  if (last.kind === "vote" && view.grader) {
    const before = mine().votes.get(idOf(one));
    panel.vote(nameOf(view), view.grader, one.criterion_id, before && before.value !== CANNOT ? Number(before.value) : null);
  }
  draw();
  focusOn(Math.max(0, i));
  say(`Taken back: ${one ? `${called(one)}, ${worded(last.value)}` : "the submission"}, ${view.response_id}.`);
}

// ---- from case to case
function onward() {                                // to the next one with something to do
  const { list, at, adjudicating } = page, todo = row => adjudicating ? row.conflicts : !row.submitted;
  const numbers = list.cases.map((_, number) => number).filter(number => number !== at && todo(list.cases[number]));
  const next = numbers.find(number => number > at) ?? numbers[0];
  if (next !== undefined) return open(next, adjudicating);
  draw();
  $("outcome")?.focus();
  say("There is no other open case.");
}

function step(by) {                                // through the list that is shown
  const { list, at, adjudicating } = page, count = list.cases.length;
  for (let k = 1, number = at; k <= count; k += 1) {
    number = (number + by + count) % count;
    if (!adjudicating || list.cases[number].conflicts) return open(number, adjudicating);
  }
  say("Nothing waits for an adjudicator.");
}

async function toggleList() {                      // the server tells who is to adjudicate what others differ on
  page.adjudicating = !page.adjudicating;
  await refresh();
  drawFrame();
  const cases = page.list.cases, first = cases.findIndex(row => page.adjudicating ? row.conflicts : !row.submitted);
  if (first >= 0) open(first, page.adjudicating);
  else say(page.adjudicating ? "Nothing waits for an adjudicator." : "You have submitted every case.");
}

// ---- keys
const ANYTIME = { n: () => step(1), p: () => step(-1), a: toggleList, "?": () => $("help").showModal() };
const KEYS = {
  j: () => focusOn(Math.min(page.crit + 1, page.view.asked.length - 1)),
  k: () => focusOn(Math.max(page.crit - 1, 0)),
  u: undo, s: submit, x: () => cast(CANNOT),
  c: () => { if (!isClosed(mine()) || canSettle(page.view.asked[page.crit], mine())) comment(page.crit); },
  g: () => {
    if (!$("panel")) return;
    $("panel").open = true;
    ($("slider-0") ?? $("panel").firstChild).focus();
  },
  e: () => {
    page.evidence = !page.evidence;
    $("response").classList.toggle("plainly", !page.evidence);
    say(page.evidence ? "Evidence shown" : "Evidence hidden");
  },
};

function meant(event) {                            // what a key does here
  if (ANYTIME[event.key] || !page.view) return ANYTIME[event.key];
  const option = page.view.asked[page.crit].options.find(one => one.key === event.key);
  const votes = option && !event.target.matches("[type=range]") && (() => cast(option.value));
  return KEYS[event.key] ?? votes;
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !page.list || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("textarea, input:not([type=range], [type=radio])");
  if (event.key === "Escape" && typing) {
    event.target.blur();
    return focusOn(page.crit);
  }
  if (typing || !$("shortcuts").checked || event.repeat && !"jknp".includes(event.key)) return;
  const does = meant(event);
  if (!does) return;
  event.preventDefault();
  does();
});

// ---- beginning
async function begin() {
  try {
    const who = await ask("/api/me");
    if (!who.reviewer) return who.tokens ? location.reload() : askName();
    if (page.me && page.me !== who.reviewer) return location.reload();
    page.me = who.reviewer;
    page.list = await ask("/api/cases");
    $("me").disabled = who.tokens;
  } catch { return setTimeout(begin, PAUSE); }
  $("me").hidden = false;
  fill($("me"), el("bdi", {}, page.me));
  const changed = () => { drawFrame(); if (page.view) touchRubric(); };
  page.outbox ??= new Outbox(`rubricflow ${page.list.study} ${page.me}`, { changed, stored, refused });
  page.log = [...page.outbox.acts];
  page.made = [...page.outbox.acts];
  page.outbox.send();
  drawFrame();
  if (!page.list.cases.length) return fill($("main"), el("p", { class: "mute" }, "No case waits."));
  const [kind, id, crit] = location.hash.slice(1).split("/");
  const place = page.list.cases.findIndex(row => `${kind}:${decoded(id)}` === nameOf(row));
  if (place < 0) return open(Math.max(0, page.list.cases.findIndex(row => !row.submitted)));
  await go(place, false, Number(crit) || 0);
  if (page.view) focusOn(page.crit);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return ""; }
}

function askName() {
  $("who").oncancel = event => { if (!page.me) event.preventDefault(); };
  if (!$("who").open) $("who").showModal();
}

$("enter").onsubmit = async event => {
  event.preventDefault();
  try {
    await ask("/api/me", { name: $("name").value });
    if (page.me) return location.reload();
    $("who").close();
    begin();
  } catch (error) { $("wrong").textContent = error.status ? error.message : "No answer from the server."; }
};
$("me").onclick = askName;
$("keys").onclick = () => $("help").showModal();
$("closeHelp").onclick = () => $("help").close();
$("shortcuts").checked = localStorage.getItem("rubricflow shortcuts") !== "off";
$("shortcuts").onchange = event => localStorage.setItem("rubricflow shortcuts", event.target.checked ? "on" : "off");
$("waiting").onclick = () => { if (page.adjudicating) toggleList(); };
$("conflicts").onclick = () => { if (!page.adjudicating) toggleList(); };
$("fold").onclick = () => $("fold").setAttribute("aria-expanded", String(document.querySelector(".queue").classList.toggle("open")));
$("stored").onclick = () => page.outbox?.now();
addEventListener("beforeunload", event => { if ([...drafts.values()].some(text => text.trim())) event.preventDefault(); });
addEventListener("focus", () => { if (page.list) refresh(); });
setInterval(() => { if (page.list && !document.hidden) refresh(); }, REFRESH);
begin();
