/**
 * The page's draft of the node's policies: one for all pages, kept over navigation and reloading of this tab. Nothing of
 * it is in effect until `apply`. A component that shows it calls `usePolicies()`.
 */
import { request } from '$lib/api';
import { watch } from '$lib/live.svelte';
import { asProblem, type ProblemError } from '$lib/problem';
import { session } from '$lib/session.svelte';
import { readSet, type Policy, type PolicySet } from './documents';
import {
  callFor,
  changesBetween,
  effectOf,
  isSame,
  onTopOf,
  readPlace,
  remarks,
  withoutPolicy,
  withPolicy,
  type Affected,
} from './draft';

interface Counting {
  version: number;
  set: PolicySet;
}

export interface Version {
  version: number;
  changed_ms: number;
  who: string;
  what: string;
}

export interface DryRun {
  version: number;
  checked: number;
  total: number;
  affected: Affected[];
}

/** An open publisher, subscription or query, and the policy that decides its importance now. */
export interface Open {
  operation: string;
  channel: string;
  client: string;
  user: string;
  policy: string;
}

const STORED = 'accord.policies.draft';
const WAIT_MS = 350;
const HOLD_MS = 900; // fields hand on what is typed sooner
const POLL_MS = 10_000;
const OPEN_MS = 30_000;
/** For counting what policies without an importance decide: each takes a dry run. */
const MAX_SINGLY = 12;
const MAX_POLICIES_SINGLY = 200;
/** No policy has this deadline, so a set with only this one affects everything that is open: that lists it. */
const PROBE = { name: 'probe', precedence: 1_000_000, preferences: { deadline: 2_591_999_999 } };

class DraftState {
  /** What the draft was made of. */
  base = $state.raw<Counting>();
  set = $state.raw<PolicySet>();
  /** What is in effect now, if others made it since. */
  theirs = $state.raw<Counting>();
  history = $state.raw<Version[]>([]);
  loadProblem = $state.raw<ProblemError>();
  dry = $state.raw<DryRun>();
  /** Why the node would refuse the draft. */
  problem = $state.raw<ProblemError>();
  isTrying = $state(false);
  isApplying = $state(false);
  /** Why it was not applied, if not for the draft itself. */
  applyProblem = $state.raw<ProblemError>();
  /** The version that this tab made last. */
  made = $state(0);
  /** The draft was there when the page was opened. */
  isRestored = $state(false);
  /** It is the content of this earlier version. */
  ofVersion = $state.raw<{ version: number; set: PolicySet }>();
  open = $state.raw<Open[]>([]);
  openTotal = $state(0);
  /** How many open operations each policy decides for, if known. */
  decides = $state.raw<ReadonlyMap<string, number>>(new Map());

  readonly changes = $derived(this.base && this.set ? changesBetween(this.base.set, this.set) : []);
  readonly isChanged = $derived(this.changes.length > 0);
  readonly changed = $derived(new Set(this.changes.map((each) => each.policy).filter(Boolean)));
  readonly effect = $derived(this.dry && effectOf(this.dry));
  readonly remarks = $derived(this.base && this.set ? remarks(this.base.set, this.set) : []);
  readonly place = $derived(this.problem?.place && this.set ? readPlace(this.problem.place, this.set) : undefined);

  #timer: ReturnType<typeof setTimeout> | undefined;
  #trying: AbortController | undefined;
  #loading: Promise<void> | undefined;
  #user: string | undefined;
  #seen = new Map<number, PolicySet>();
  #openMs = 0;

  /** What the node says of a field of a policy (or '' of a setting). */
  problemOf(policy: string, field: string): string {
    const place = this.place;
    if (!place || !this.problem || (place.policy ?? '') !== policy || place.limit !== undefined) return '';
    return place.field === field || place.field.startsWith(`${field}[`) ? this.problem.detail : '';
  }

  policy(name: string): Policy | undefined {
    return this.set?.policies.find((each) => each.name === name);
  }

  was(name: string): Policy | undefined {
    return this.base?.set.policies.find((each) => each.name === name);
  }

  /** Change the draft. The node is asked after a short pause whether it is valid and whom it would affect. */
  edit(change: (set: PolicySet) => PolicySet): void {
    if (!this.set) return;
    this.#become(change(this.set));
  }

  put(policy: Policy, former = policy.name): void {
    this.edit((set) => withPolicy(set, policy, former));
  }

  remove(name: string): void {
    this.edit((set) => withoutPolicy(set, name));
  }

  discard(): void {
    const now = this.theirs ?? this.base;
    this.theirs = undefined;
    this.base = now;
    this.ofVersion = undefined;
    this.isRestored = false;
    if (now) this.#become(now.set);
  }

  /** Keep my changes, on top of what others made. */
  rebase(): void {
    if (!this.base || !this.set || !this.theirs) return;
    const mine = onTopOf(this.base.set, this.set, this.theirs.set);
    this.base = this.theirs;
    this.theirs = undefined;
    this.#become(mine);
  }

  /** Make a draft of an earlier version. */
  async startFrom(version: number): Promise<void> {
    const set = await this.read(version);
    this.ofVersion = { version, set };
    this.isRestored = false;
    this.#become(set);
  }

  /** The content of a version that is stored. */
  async read(version: number): Promise<PolicySet> {
    const known = this.#seen.get(version);
    if (known) return known;
    const { set } = readSet(await request('get', `/api/v1/policies/history/${version}`));
    this.#seen.set(version, set);
    return set;
  }

  async rollBack(version: number): Promise<void> {
    const { version: made } = (await request('post', '/api/v1/policies/rollback', {
      body: { version },
      ...this.#match(),
    })) as { version: number };
    await this.#counted(made);
  }

  /** What was tried is about to be old: something is being typed. It is tried again when that rests. */
  hold(): void {
    if (this.isChanged) this.#tryIn(HOLD_MS);
  }

  async apply(): Promise<void> {
    if (!this.base || !this.set || !this.isChanged || this.isApplying || this.isTrying) return;
    this.isApplying = true;
    this.applyProblem = undefined;
    try {
      if (this.ofVersion && isSame(this.ofVersion.set, this.set)) {
        await this.rollBack(this.ofVersion.version);
        return;
      }
      const { method, address, body } = callFor(this.base.set, this.set);
      const { version } = (await request(method, address, { body, ...this.#match() })) as { version: number };
      await this.#counted(version);
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 412) await this.refresh();
      if (problem.status !== 412 || !this.theirs) this.applyProblem = problem;
    } finally {
      this.isApplying = false;
    }
  }

  #match(): { ifMatch?: number } {
    return this.base ? { ifMatch: this.base.version } : {};
  }

  async #counted(version: number): Promise<void> {
    this.made = version;
    this.ofVersion = undefined;
    this.base = undefined;
    this.theirs = undefined;
    this.isRestored = false;
    forget();
    await this.refresh();
  }

  /** Ask for what is in effect. */
  refresh(): Promise<void> {
    this.#loading ??= this.#load().finally(() => (this.#loading = undefined));
    return this.#loading;
  }

  async #load(): Promise<void> {
    try {
      const [found, { history }] = (await Promise.all([
        request('get', '/api/v1/policies'),
        request('get', '/api/v1/policies/history'),
      ])) as [unknown, { history: Version[] }];
      this.history = history;
      this.loadProblem = undefined;
      this.#take(readSet(found));
    } catch (error) {
      this.loadProblem = asProblem(error);
    }
  }

  #take(now: Counting): void {
    this.#seen.set(now.version, now.set);
    if (this.#user !== session.user) {
      this.#user = session.user;
      this.base = undefined;
      const stored = recall();
      if (stored) {
        this.base = stored.base;
        this.set = stored.set;
        this.isRestored = true;
      }
    }
    if (!this.base || !this.set || !this.isChanged) {
      this.base = now;
      this.theirs = undefined;
      this.isRestored = false;
      this.#become(now.set);
    } else if (now.version === this.base.version && isSame(now.set, this.base.set)) {
      this.theirs = undefined;
      this.base = now;
      this.#become(this.set);
    } else {
      this.theirs = now;
      this.#become(this.set);
    }
    void this.count();
  }

  /** Whether what others made may be newer than what is known. */
  isNews(version: number): boolean {
    return version !== (this.theirs ?? this.base)?.version;
  }

  async poll(): Promise<void> {
    try {
      const { history } = (await request('get', '/api/v1/policies/history')) as { history: Version[] };
      this.history = history;
      if (history[0] && this.isNews(history[0].version)) await this.refresh();
    } catch {
      // The stream says when the node is silent.
    }
  }

  #become(set: PolicySet): void {
    this.set = set;
    this.applyProblem = undefined;
    if (this.isChanged && this.base) keep({ user: session.user, base: this.base, set });
    else {
      forget();
      this.ofVersion = undefined;
      this.isRestored = false;
    }
    if (!this.isChanged) {
      clearTimeout(this.#timer);
      this.#trying?.abort();
      this.dry = undefined;
      this.problem = undefined;
      this.isTrying = false;
      return;
    }
    this.#tryIn(WAIT_MS);
  }

  #tryIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#trying?.abort();
    this.isTrying = true;
    this.#timer = setTimeout(() => void this.#try(), ms);
  }

  async #try(): Promise<void> {
    const trying = new AbortController();
    this.#trying = trying;
    try {
      const found = (await request('post', '/api/v1/policies/dry-run', {
        body: this.set,
        signal: trying.signal,
      })) as DryRun;
      if (trying.signal.aborted) return;
      this.dry = found;
      this.problem = undefined;
    } catch (error) {
      if (trying.signal.aborted) return;
      this.problem = asProblem(error);
    }
    this.isTrying = false;
  }

  /** What is open, and for how much of it each policy decides. */
  async count(): Promise<void> {
    const base = this.theirs ?? this.base;
    if (!base || Date.now() - this.#openMs < 1_000) return;
    this.#openMs = Date.now();
    try {
      const found = await dryRun({ ...base.set, policies: [PROBE] });
      this.open = found.affected.map(({ operation, channel, client, user, policy_before }) => ({
        operation,
        channel,
        client,
        user,
        policy: policy_before,
      }));
      this.openTotal = found.checked;
      const decides = new Map<string, number>();
      for (const each of this.open) decides.set(each.policy, (decides.get(each.policy) ?? 0) + 1);
      this.decides = decides;
      const others = base.set.policies.filter((each) => each.importance === undefined && !each.where);
      if (base.set.policies.length > MAX_POLICIES_SINGLY) return;
      for (const each of others.slice(0, MAX_SINGLY)) {
        decides.set(each.name, (await dryRun(withoutPolicy(base.set, each.name))).total);
        this.decides = new Map(decides);
      }
    } catch {
      this.decides = new Map();
    }
  }
}

const dryRun = async (body: object): Promise<DryRun> =>
  (await request('post', '/api/v1/policies/dry-run', { body })) as DryRun;

interface Stored {
  user: string;
  base: Counting;
  set: PolicySet;
}

function keep(stored: Stored): void {
  try {
    sessionStorage.setItem(STORED, JSON.stringify(stored));
  } catch {
    forget(); // too large: it lasts while the page is open
  }
}

function forget(): void {
  sessionStorage.removeItem(STORED);
}

function recall(): Stored | undefined {
  try {
    const found = JSON.parse(sessionStorage.getItem(STORED) ?? 'null') as Stored | null;
    if (
      found &&
      found.user === session.user &&
      Array.isArray(found.set.policies) &&
      Array.isArray(found.base.set.policies)
    )
      return found;
  } catch {
    // not a draft
  }
  return undefined;
}

export const policies = new DraftState();

/** Call it while a component that shows policies is initialised. */
export function usePolicies(): DraftState {
  const node = watch('node', () => (session.may('policies') && session.may('statistics') ? {} : undefined));
  $effect(() => {
    if (!session.may('policies')) return;
    void policies.refresh();
    const timer = setInterval(() => !document.hidden && void policies.poll(), POLL_MS);
    const counting = setInterval(() => !document.hidden && void policies.count(), OPEN_MS);
    return () => {
      clearInterval(timer);
      clearInterval(counting);
    };
  });
  let seen = -1;
  $effect(() => {
    const version = node.state?.management.version;
    if (version === undefined || version === seen) return;
    seen = version;
    if (policies.base && policies.isNews(version)) void policies.refresh();
  });
  return policies;
}
