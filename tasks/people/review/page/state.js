// What the page knows, and what stands of it: the server's word, and after it the acts of this page.

export const CANNOT = "x";                         // the vote for what cannot be judged
export const page = {
  me: null, list: null, view: null,                // who reviews; all cases; the one that is open, as the server tells it
  at: -1, crit: 0,                                 // its number in the list; the current criterion's in the case
  adjudicating: false, evidence: true, refusal: "", order: [],  // numbers of the cases in the order of the list
  log: [], made: [],                               // acts of this page in order: those the view does not hold yet; all
  outbox: null,
};
// By case and criterion: comments not sent, levels chosen for settling, comment boxes that were opened, points as typed.
export const drafts = new Map(), choices = new Map(), opened = new Set(), typed = new Map();

export const nameOf = thing => thing.response_id;  // of a case, or of an act on one: a score's criteria are a part of it
export const idOf = thing => thing.criterion_id ?? "";  // the score has no criterion
export const placeOf = one => `${nameOf(page.view)}|${idOf(one)}`;
export const called = one => one.criterion_id ?? "Score";
export const isTyped = one => one.options.every(option => option.key === null);
export const valuesOf = one => one.options.map(option => option.value);
export const isUnstored = act => page.outbox.acts.some(one => one.act_id === act.act_id);
export const isSilent = vote => vote?.value === CANNOT && !(vote.comment ?? "").trim();

export const isDone = row => row.submitted || row.marked;  // nobody is asked of what people marked in the data
export const isScored = () => page.view.subject_kind === "score";
export const noteDraft = () => `${nameOf(page.view)}|\n`;  // its place among the drafts: no criterion is called so

export function worded(one, value) {
  return value === CANNOT ? "cannot be judged" : `${one.criterion_id === null ? "score" : "level"} ${value}`;
}

// The reviewer's votes by criterion, whether they are submitted, and what is settled.
export function mine() {
  const { view, log } = page, taken = new Set(log.map(act => act.undoes).filter(Boolean));
  const isLeft = act => !taken.has(act.act_id);
  const acts = log.filter(act => nameOf(act) === nameOf(view) && isLeft(act));
  const votes = new Map(view.asked.map(one => [idOf(one), one.mine && isLeft(one.mine) ? one.mine : null]));
  const settled = new Map(Object.entries(view.settled).filter(([, act]) => isLeft(act)));
  const notes = view.notes.filter(note => note.rater === page.me && isLeft(note));
  for (const act of acts) {
    if (act.kind === "vote") votes.set(idOf(act), act);
    if (act.kind === "note") notes.push({ act_id: act.act_id, text: act.comment });
    if (act.kind === "adjudicate") settled.set(idOf(act), { ...act, rater: page.me });
  }
  const submitted = view.submission !== null && !taken.has(view.submission) || acts.some(act => act.kind === "submit");
  return { votes, submitted, settled, notes };
}

export const isClosed = state => state.submitted || page.view.third;
export const isApart = (one, state) => page.view.apart.includes(idOf(one)) && !state.settled.has(idOf(one));
export const canSettle = (one, state) => isApart(one, state) && isClosed(state);

export function todo(state) {
  const votes = page.view.asked.map(one => state.votes.get(idOf(one)));
  const left = votes.filter((vote, i) => !vote && page.view.asked[i].needed).length;
  if (left && isScored()) return "no score yet";
  const silent = page.view.asked.filter((_, i) => isSilent(votes[i])).map(called);
  return left ? `${left} to go` : silent.length ? `${silent.join(", ")}: say why` : "all voted";
}

// The reviewer's last act that can be taken back, of this visit or an earlier one.
export function lastAct() {
  const taken = new Set(page.made.map(act => act.undoes)), known = new Set(page.list.latest.map(act => act.act_id));
  const own = page.made.filter(act => act.kind !== "undo" && !known.has(act.act_id));
  return [...page.list.latest, ...own].filter(act => !taken.has(act.act_id)).at(-1);
}

// Which cases this browser has shown more of than the response: the server may forget it.
const shownHere = () => `rubricflow shown ${page.list.study} ${page.me}`;
const shownName = () => `${page.view.subject_kind}:${page.view.response_id}`;
const shown = () => new Set(JSON.parse(localStorage.getItem(shownHere()) || "[]"));

export function remember() {
  localStorage.setItem(shownHere(), JSON.stringify([...shown().add(shownName())]));
}

export function wasShown() { return shown().has(shownName()); }
