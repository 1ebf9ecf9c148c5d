/**
 * The draft of this page: a document of expectations and profiles, edited as fields, JSON or XML. The text that was
 * typed or loaded stays as it is until something is changed elsewhere. Nothing of it counts until it is registered.
 */
import { asProblem, ProblemError } from '$lib/problem';
import {
  expectationOf,
  formatOf,
  profileOf,
  ranked,
  readDocument,
  writeDocument,
  type Expectation,
  type Profile,
  type QualityDocument,
} from './documents';
import { convert } from './requests';
import type { ExpectationRow, ProfileRow } from '$api/contract';

export type View = 'fields' | 'json' | 'xml';
export type Format = 'json' | 'xml';

/** Whose things the draft began as; empty: nobody's yet, or this page's. */
export interface Target {
  client: string;
  channel: string;
  /** IDs that are registered. */
  ids: readonly string[];
  hasProfile: boolean;
}

export const MAX_CHARACTERS = 262_144;
const WAIT_MS = 300;
const NOBODY: Target = { client: '', channel: '', ids: [], hasProfile: false };

class EditorState {
  document = $state.raw<QualityDocument>({ expectations: [], profiles: [] });
  target = $state.raw<Target>(NOBODY);
  view = $state<View>('fields');
  /** Which expectation is edited, or which profile, after the expectations. */
  item = $state(0);
  json = $state<string>();
  xml = $state<string>();
  fileName = $state('');
  isChanged = $state(false);
  isChecking = $state(false);
  /** Why the node would refuse the document, and in which of its forms. */
  problem = $state.raw<ProblemError>();
  problemView = $state<View>('fields');

  #turn = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  readonly expectation = $derived<Expectation | undefined>(this.document.expectations[this.item]);
  readonly profile = $derived<Profile | undefined>(
    this.document.profiles[this.item - this.document.expectations.length],
  );
  readonly isEmpty = $derived(!this.document.expectations.length && !this.document.profiles.length);

  /** Begin with the alternatives of a subscription; `id` is the one edited. */
  openExpectations(rows: readonly ExpectationRow[], id: string): void {
    const first = rows[0];
    if (!first) return;
    const expectations = ranked(rows.map(expectationOf));
    this.#begin(
      { expectations, profiles: [] },
      {
        client: first.client,
        channel: first.subscription || first.channel,
        ids: rows.map((each) => each.id),
        hasProfile: false,
      },
    );
    this.item = Math.max(
      0,
      expectations.findIndex((each) => each.id === id),
    );
  }

  openProfile(row: ProfileRow): void {
    const target = { client: row.publisher, channel: row.channel, ids: [], hasProfile: true };
    this.#begin({ expectations: [], profiles: [profileOf(row)] }, target);
  }

  openNew(document: QualityDocument): void {
    this.#begin(document, NOBODY);
  }

  clear(): void {
    this.#begin({ expectations: [], profiles: [] }, NOBODY);
    this.view = 'fields';
  }

  /** What is registered now is what the draft says. */
  registered(target: Target): void {
    this.target = target;
    this.isChanged = false;
  }

  #begin(document: QualityDocument, target: Target): void {
    this.#stop();
    this.document = document;
    this.target = target;
    this.item = 0;
    this.fileName = '';
    this.json = this.xml = undefined;
    this.problem = undefined;
    this.isChanged = false;
    if (this.view !== 'fields') void this.show(this.view);
  }

  // Fields

  edit(document: QualityDocument): void {
    this.document = document;
    this.json = this.xml = undefined;
    this.isChanged = true;
    const last = document.expectations.length + document.profiles.length - 1;
    this.item = Math.max(0, Math.min(this.item, last));
    this.#later('fields', async (isWanted) => {
      if (this.isEmpty) return;
      const json = await convert(writeDocument(document), 'json');
      if (isWanted()) this.json = json;
    });
  }

  editExpectation(change: Partial<Expectation>, at = this.item): void {
    const expectations = this.document.expectations.map((each, i) => (i === at ? { ...each, ...change } : each));
    this.edit({ ...this.document, expectations });
  }

  editProfile(change: Partial<Profile>): void {
    const at = this.item - this.document.expectations.length;
    const profiles = this.document.profiles.map((each, i) => (i === at ? { ...each, ...change } : each));
    this.edit({ ...this.document, profiles });
  }

  // Texts

  editText(format: Format, text: string): void {
    if (format === 'json') [this.json, this.xml] = [text, undefined];
    else [this.json, this.xml] = [undefined, text];
    this.isChanged = true;
    this.#later(format, async (isWanted) => {
      if (text.length > MAX_CHARACTERS)
        throw new ProblemError({ status: 413, detail: `at most ${MAX_CHARACTERS} characters` });
      const found = readDocument(await convert(text, 'json'));
      if (!isWanted()) return;
      this.document = found;
      this.item = Math.max(0, Math.min(this.item, found.expectations.length + found.profiles.length - 1));
    });
  }

  /** Show a form of the document; texts are written by the node. */
  async show(view: View): Promise<void> {
    this.view = view;
    if (view !== 'fields') await this.textOf(view).catch((error: unknown) => this.#refused('fields', error));
  }

  async textOf(format: Format): Promise<string> {
    const known = this[format];
    if (known !== undefined) return known;
    const turn = this.#turn;
    const source = this.problem && this.problemView !== 'fields' ? this[this.problemView] : undefined;
    // A text is newer than the document, which follows it once it was checked.
    const text = await convert(source ?? this.xml ?? this.json ?? writeDocument(this.document), format);
    if (turn === this.#turn) this[format] ??= text;
    return this[format] ?? text;
  }

  load(name: string, text: string): void {
    const format = formatOf(name, text);
    this.target = NOBODY;
    this.item = 0;
    this.fileName = name;
    this.view = format;
    this.editText(format, text);
  }

  // Checking

  #later(view: View, check: (isWanted: () => boolean) => Promise<void>): void {
    this.#stop();
    const turn = this.#turn;
    this.isChecking = true;
    this.#timer = setTimeout(() => {
      check(() => turn === this.#turn)
        .then(() => {
          if (turn === this.#turn) this.problem = undefined;
        })
        .catch((error: unknown) => {
          if (turn === this.#turn) this.#refused(view, error);
        })
        .finally(() => {
          if (turn === this.#turn) this.isChecking = false;
        });
    }, WAIT_MS);
  }

  #stop(): void {
    this.#turn += 1;
    clearTimeout(this.#timer);
    this.isChecking = false;
  }

  #refused(view: View, error: unknown): void {
    this.problem = asProblem(error);
    this.problemView = view;
  }
}

export const editor = new EditorState();
