/** Who looks at the page, and what they may do. The node enforces it; the page only shows it. */
import type { Rights, Session } from '$api/contract';
import { request } from './api';
import { asProblem, ProblemError } from './problem';

const NOTHING: Rights = { statistics: false, policies: false, publish: [], subscribe: [] };
const EVERYTHING: Rights = { statistics: true, policies: true, publish: ['#'], subscribe: ['#'] };

class SessionState {
  current = $state.raw<Session>();
  #refreshing: Promise<void> | undefined;

  get isKnown(): boolean {
    return this.current !== undefined;
  }

  get needsLogin(): boolean {
    return this.current?.needs_login ?? false;
  }

  get rights(): Rights {
    return this.current?.rights ?? NOTHING;
  }

  get user(): string {
    return this.current?.user ?? '';
  }

  /** Whether this user may do something at all; the node decides per channel. */
  may(right: 'statistics' | 'policies' | 'publish' | 'subscribe'): boolean {
    const found = this.rights[right];
    return typeof found === 'boolean' ? found : found.length > 0;
  }

  refresh(): Promise<void> {
    this.#refreshing ??= this.#load().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #load(): Promise<void> {
    try {
      this.current = (await request('get', '/api/v1/session', { leadsToLogin: false })) as Session;
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 404)
        // A node that has no sessions yet: everybody may do everything that it allows.
        this.current = {
          user: '',
          needs_login: false,
          groups: [],
          rights: EVERYTHING,
          expires_ms: null,
          node: '',
          version: '',
        };
      else if (problem.status === 401) this.askLogin();
    }
  }

  async logIn(user: string, password: string): Promise<void> {
    this.current = (await request('post', '/api/v1/session', {
      body: { user, password },
      leadsToLogin: false,
    })) as Session;
  }

  async logOut(): Promise<void> {
    try {
      await request('delete', '/api/v1/session', { leadsToLogin: false });
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
    }
    await this.refresh();
  }

  /** An answer was 401: the session has ended. */
  askLogin(): void {
    const known = this.current;
    this.current = {
      user: '',
      groups: [],
      expires_ms: null,
      node: known?.node ?? '',
      version: known?.version ?? '',
      needs_login: true,
      rights: NOTHING,
    };
  }
}

export const session = new SessionState();
