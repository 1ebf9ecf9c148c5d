/** The rows of the network as the node sends them, and a snapshot of them that changes in place. */
import type { Schemas } from '$api/contract';

export interface NetNode {
  is_reachable?: boolean;
  processing_us?: number;
  started_ms?: number;
  location?: [latitude: number, longitude: number] | null;
}

/** One direction of a link; members that are as usual are left out. */
export interface NetLink {
  latency_us: number;
  is_up?: boolean;
  is_used?: boolean;
  loss?: number;
  failure?: number;
}

export type NetFlow = Schemas['FlowStatus'];
export type NetArrival = Schemas['ArrivalStatus'];
export type Row = NetNode | NetLink | NetFlow | NetArrival;

type Nested<T> = Record<string, Record<string, T | null>>;

/** What is known (live), or what changed (a step of the history, where null means none any more). */
export interface NetRows {
  nodes: Record<string, NetNode | null>;
  links: Nested<NetLink>;
  flows: Nested<NetFlow>;
  arrivals: Nested<NetArrival>;
}

export type Kind = 'node' | 'link' | 'flow' | 'arrival';

export interface Change {
  kind: Kind;
  /** The node, or the node that reports. */
  of: string;
  /** The link's target, or the number of a flow or arrival. */
  key: string;
  row: Row | null;
}

const NESTED = [
  ['link', 'links'],
  ['flow', 'flows'],
  ['arrival', 'arrivals'],
] as const;

export const idOf = (of: string, key: string): string => `${of}\u0000${key}`;

export class Snapshot {
  readonly nodes = new Map<string, NetNode>();
  readonly links = new Map<string, NetLink & { source: string; target: string }>();
  readonly flows = new Map<string, NetFlow>();
  readonly arrivals = new Map<string, NetArrival>();

  copy(): Snapshot {
    const made = new Snapshot();
    for (const [key, row] of this.nodes) made.nodes.set(key, row);
    for (const [key, row] of this.links) made.links.set(key, row);
    for (const [key, row] of this.flows) made.flows.set(key, row);
    for (const [key, row] of this.arrivals) made.arrivals.set(key, row);
    return made;
  }

  link(source: string, target: string): NetLink | undefined {
    return this.links.get(idOf(source, target));
  }

  apply({ kind, of, key, row }: Change): void {
    const id = kind === 'node' ? of : idOf(of, key);
    if (kind === 'link') {
      if (row) this.links.set(id, { ...(row as NetLink), source: of, target: key });
      else this.links.delete(id);
      return;
    }
    const rows = (kind === 'node' ? this.nodes : kind === 'flow' ? this.flows : this.arrivals) as Map<string, Row>;
    if (row) rows.set(id, row);
    else rows.delete(id);
  }

  row({ kind, of, key }: Change): Row | undefined {
    if (kind === 'node') return this.nodes.get(of);
    return { link: this.links, flow: this.flows, arrival: this.arrivals }[kind].get(idOf(of, key));
  }
}

/** The rows as changes. */
export function changesOf(rows: NetRows): Change[] {
  const found: Change[] = [];
  for (const [name, row] of Object.entries(rows.nodes)) found.push({ kind: 'node', of: name, key: '', row });
  for (const [kind, part] of NESTED)
    for (const [of, inner] of Object.entries(rows[part] as Nested<Row>))
      for (const [key, row] of Object.entries(inner)) found.push({ kind, of, key, row });
  return found;
}

const own = <T>(rows: Record<string, T>, name: string): T | undefined =>
  Object.hasOwn(rows, name) ? rows[name] : undefined;

/** What changed between two states, whose equal parts are the same objects. */
export function difference(before: NetRows, after: NetRows): Change[] {
  const found: Change[] = [];
  const compare = <T extends Row>(
    kind: Kind,
    was: Record<string, T | null>,
    is: Record<string, T | null>,
    change: (name: string) => Pick<Change, 'of' | 'key'>,
  ) => {
    if (was === is) return;
    for (const name of Object.keys(is))
      if (is[name] !== own(was, name)) found.push({ kind, ...change(name), row: is[name] ?? null });
    for (const name of Object.keys(was)) if (!Object.hasOwn(is, name)) found.push({ kind, ...change(name), row: null });
  };
  compare('node', before.nodes, after.nodes, (name) => ({ of: name, key: '' }));
  for (const [kind, part] of NESTED) {
    const was: Nested<Row> = before[part];
    const is: Nested<Row> = after[part];
    if (was === is) continue;
    for (const of of new Set([...Object.keys(was), ...Object.keys(is)]))
      compare(kind, own(was, of) ?? {}, own(is, of) ?? {}, (key) => ({ of, key }));
  }
  return found;
}

/** What leads from a snapshot to a state. */
export function towards(snapshot: Snapshot, state: NetRows): Change[] {
  const wanted = changesOf(state);
  const found = wanted.filter((each) => JSON.stringify(plainRow(snapshot.row(each))) !== JSON.stringify(each.row));
  const kept = new Set(wanted.map((each) => `${each.kind} ${idOf(each.of, each.key)}`));
  for (const name of snapshot.nodes.keys())
    if (!kept.has(`node ${idOf(name, '')}`)) found.push({ kind: 'node', of: name, key: '', row: null });
  for (const [kind, rows] of [
    ['link', snapshot.links],
    ['flow', snapshot.flows],
    ['arrival', snapshot.arrivals],
  ] as const)
    for (const id of rows.keys())
      if (!kept.has(`${kind} ${id}`)) {
        const [of, key] = id.split('\u0000') as [string, string];
        found.push({ kind, of, key, row: null });
      }
  return found;
}

function plainRow(row: Row | undefined): Row | undefined {
  if (!row || !('target' in row)) return row;
  const plain: Record<string, unknown> = { ...row };
  delete plain['source'];
  delete plain['target'];
  return plain as unknown as Row;
}
