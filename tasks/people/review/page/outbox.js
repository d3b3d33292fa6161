// Acts on their way to the server: kept in order, through a reload too, and sent again until there is an answer.

const FIRST_PAUSE = 500, LONGEST_PAUSE = 20000, PATIENCE = 15000;  // ms

export async function ask(path, body) {
  const headers = { "Content-Type": "application/json" };
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers };
  const answer = await fetch(path, { ...sent, signal: AbortSignal.timeout(PATIENCE), credentials: "same-origin" });
  const content = await answer.json().catch(() => ({}));
  if (answer.ok) return content;
  throw Object.assign(new Error(content.error || `the server answered ${answer.status}`), { status: answer.status });
}

export function uuid() {                           // crypto.randomUUID is there on encrypted pages only
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = bytes[6] & 15 | 64;
  bytes[8] = bytes[8] & 63 | 128;
  const hex = Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export class Outbox {
  // changed(): something was added, stored or refused, or has to wait. stored(act), refused(act, reason).
  constructor(place, { changed, stored, refused }) {
    Object.assign(this, { place, changed, stored, refused, problem: null, pause: FIRST_PAUSE, busy: false });
    try { this.acts = JSON.parse(sessionStorage.getItem(place)) || []; } catch { this.acts = []; }
    addEventListener("online", () => this.now());
    addEventListener("beforeunload", event => { if (this.acts.length) event.preventDefault(); });
  }

  add(act) {
    this.acts.push(act);
    this.keep();
    this.send();
  }

  now() {                                          // do not wait for the next try
    this.pause = FIRST_PAUSE;
    this.wake?.();
  }

  keep() {
    try { sessionStorage.setItem(this.place, JSON.stringify(this.acts)); } catch { /* full or forbidden: kept here */ }
    this.changed();
  }

  async send() {
    if (this.busy) return;
    this.busy = true;
    while (this.acts.length) {
      const act = this.acts[0];
      try {
        await ask("/api/acts", act);
        this.done(() => this.stored(act));
      } catch (error) {
        const isFinal = error.status >= 400 && error.status < 500 && error.status !== 401;
        if (isFinal) this.done(() => this.refused(act, error.message));
        else await this.wait(error.status ? error.message : "no answer from the server");
      }
    }
    this.busy = false;
  }

  done(then) {
    Object.assign(this, { problem: null, pause: FIRST_PAUSE });
    this.acts.shift();
    then();
    this.keep();
  }

  async wait(problem) {
    this.problem = problem;
    this.changed();
    await new Promise(resolve => { this.wake = resolve; setTimeout(resolve, this.pause); });
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
  }
}
