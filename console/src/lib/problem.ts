import type { Schemas } from '$api/contract';

/** A request that the node refused or could not do; members as in its problem details (RFC 9457). */
export class ProblemError extends Error {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  /** Where in the request: a field, or `line:column` of a text. */
  readonly place: string;
  readonly remedy: string;
  readonly retryAfterS: number;
  /** Of a text that is not valid: where, counted from 0 in characters; what was expected there; the text repaired. */
  readonly at: number | undefined;
  readonly expected: string;
  readonly repair: string;

  constructor(
    problem: Partial<Schemas['Problem']> & { status: number; at?: number; expected?: string; repair?: string },
    retryAfterS = 0,
  ) {
    const detail = problem.detail || problem.title || `status ${problem.status}`;
    super(detail);
    this.name = 'ProblemError';
    this.status = problem.status;
    this.title = problem.title ?? '';
    this.detail = detail;
    this.place = problem.place ?? '';
    this.remedy = problem.remedy ?? '';
    this.retryAfterS = retryAfterS;
    this.at = problem.at;
    this.expected = problem.expected ?? '';
    this.repair = problem.repair ?? '';
  }
}

/** Any failure as a problem, for showing it. */
export function asProblem(error: unknown): ProblemError {
  if (error instanceof ProblemError) return error;
  if (error instanceof DOMException && error.name === 'AbortError')
    return new ProblemError({ status: 0, title: 'Stopped' });
  return new ProblemError({
    status: 0,
    title: 'No answer',
    detail: 'The node did not answer.',
    remedy: 'See whether it runs, and whether this address still leads to it.',
  });
}
