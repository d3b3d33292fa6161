// What the page knows, and what stands of it: the server's word, and after it the acts of this page.

export const CANNOT = "x";                         // the vote for what cannot be judged
export const page = {
  me: null, list: null, view: null,                // who reviews; all cases; the one that is open, as the server tells it
  at: -1, crit: 0,                                 // its number in the list; the current criterion's in the case
  adjudicating: false, evidence: true, refusal: "",
  log: [], made: [],                               // acts of this page in order: those the view does not hold yet; all
  outbox: null,
};
// By case and criterion: comments not sent, levels chosen for settling, comment boxes that were opened.
export const drafts = new Map(), choices = new Map(), opened = new Set();

export const nameOf = thing => `${thing.subject_kind}:${thing.response_id}`;
export const idOf = thing => thing.criterion_id ?? "";  // the score has no criterion
export const placeOf = one => `${nameOf(page.view)}|${idOf(one)}`;
export const called = one => one.criterion_id ?? "Score";
export const isUnstored = act => page.outbox.acts.some(one => one.act_id === act.act_id);
export const isSilent = vote => vote?.value === CANNOT && !(vote.comment ?? "").trim();

export function worded(value) {
  return value === CANNOT ? "cannot be judged" : `${page.view.subject_kind} ${value}`.replace("label", "level");
}

// The reviewer's votes by criterion, whether they are submitted, and what is settled.
export function mine() {
  const { view, log } = page, taken = new Set(log.map(act => act.undoes).filter(Boolean));
  const isLeft = act => !taken.has(act.act_id);
  const acts = log.filter(act => nameOf(act) === nameOf(view) && isLeft(act));
  const votes = new Map(view.asked.map(one => [idOf(one), one.mine && isLeft(one.mine) ? one.mine : null]));
  const settled = new Map(Object.entries(view.settled).filter(([, act]) => isLeft(act)));
  for (const act of acts) {
    if (act.kind === "vote") votes.set(idOf(act), act);
    if (act.kind === "adjudicate") settled.set(idOf(act), { ...act, rater: page.me });
  }
  const submitted = view.submission !== null && !taken.has(view.submission) || acts.some(act => act.kind === "submit");
  return { votes, submitted, settled };
}

export const isClosed = state => state.submitted || page.view.third;
export const isApart = (one, state) => page.view.apart.includes(idOf(one)) && !state.settled.has(idOf(one));
export const canSettle = (one, state) => isApart(one, state) && isClosed(state);

export function todo(state) {
  const votes = page.view.asked.map(one => state.votes.get(idOf(one))), left = votes.filter(vote => !vote).length;
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
const shown = () => new Set(JSON.parse(localStorage.getItem(shownHere()) || "[]"));

export function remember() {
  localStorage.setItem(shownHere(), JSON.stringify([...shown().add(nameOf(page.view))]));
}

export function wasShown() { return shown().has(nameOf(page.view)); }
