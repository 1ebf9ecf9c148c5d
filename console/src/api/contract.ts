/** What the node sends beside its operations: sessions and the sets of the live stream. */
import type { components } from './schema';

export type Schemas = components['schemas'];

export interface Rights {
  statistics: boolean;
  policies: boolean;
  publish: string[];
  subscribe: string[];
}

export interface Session {
  user: string;
  needs_login: boolean;
  groups: string[];
  rights: Rights;
  expires_ms: number | null;
  node: string;
  version: string;
}

/** What the page's own MQTT connection logs in with. */
export interface ConnectToken {
  username: string;
  password: string;
  client_prefix: string;
  expires_ms: number;
}

/** A member without a value is left out of a state, so every member that may have none is optional. */
type Known<T> = { [K in keyof T as null extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as null extends T[K] ? K : never]?: NonNullable<T[K]>;
};

export interface Delivery {
  in_time?: number;
  delivered_hz: number;
  late_hz: number;
  shaped_hz: number;
  replaced_hz: number;
  expired_hz: number;
  shed_hz: number;
  refused_hz: number;
  deadline_hz: number;
  p50_ms?: number;
  p95_ms?: number;
}

export interface ProblemEntry {
  /** 0 is the worst. */
  rank?: number;
  severity: 'warn' | 'bad';
  subject: string;
  sentence: string;
  since_ms: number;
  page: string;
}

export interface NodeState {
  name: string;
  version: string;
  build: string;
  is_ready: boolean;
  uptime_ms: number;
  load: Schemas['NodeLoad'];
  management: Known<Schemas['Management']>;
  bins: Record<string, Known<Schemas['BinActivity']>>;
  delivery: Delivery;
  channels_total: number;
  clients_total: number;
  ledger: Known<Schemas['LedgerStatus']>;
  pipeline?: Known<Schemas['PipelineStatus']>;
  journal?: Known<Schemas['JournalStatus']> & { disk_free_bytes?: number; disk_total_bytes?: number };
  verdict: string;
  problems: Record<string, ProblemEntry>;
}

export type ChangeKind = 'policy' | 'limit' | 'client' | 'link' | 'refusal' | 'pipeline' | 'node';

export interface Change {
  at_ms: number;
  kind: ChangeKind;
  who: string;
  what: string;
  detail: string;
  page: string;
}

export interface SeriesRow {
  last: number;
  last_ms: number;
  count: number;
  mean?: number;
  deviation?: number;
  trend?: number;
  unit?: string;
}

export type ChannelRow = Known<Schemas['ChannelActivity']> & {
  in_time?: number;
  template?: string;
  max_delay_ms?: number;
  is_kept?: boolean;
  subscribers: number;
  publishers: number;
};

export type ClientRow = Known<Schemas['ClientStatus']> & Partial<Known<Schemas['ClientActivity']>>;

export interface ChannelPublisher {
  published: number;
  rate_hz: number;
  last_ms?: number;
}

export interface ChannelSubscriber {
  /** Empty if it got events, and is not subscribed any more. */
  filter: string;
  where: string;
  xpath: string;
  qos: number;
  importance: number;
  policy: string;
  received: number;
  dropped: number;
  in_time?: number;
  p50_ms?: number;
  p95_ms?: number;
  last_ms?: number;
}

export interface ChannelState {
  activity: ChannelRow;
  definition?: Schemas['Channel'];
  publishers: Record<string, ChannelPublisher>;
  publishers_total?: number;
  subscribers: Record<string, ChannelSubscriber>;
  subscribers_total?: number;
}

/** What policies grant; 0 and '' mean none. */
export interface GrantedPreferences {
  deadline_ms?: number;
  shaping?: string;
  max_bytes?: number;
  max_pixels?: number;
  is_replacing?: boolean;
}

export interface ClientChannel {
  sources: string[];
  sources_total: number;
  importance?: number;
  policy: string;
  preset?: string;
  preferences?: GrantedPreferences;
  received: number;
  dropped: number;
  /** Among the dropped. */
  replaced?: number;
  shaped: number;
  late: number;
  last_ms?: number;
  rate_hz: number;
  p50_ms?: number;
  p95_ms?: number;
  in_time?: number;
  /** Queued events, their bytes, and how long ago the oldest came. */
  waiting?: number;
  waiting_bytes?: number;
  waiting_ms?: number;
}

export interface ClientState {
  status?: Known<Schemas['ClientStatus']>;
  activity?: Known<Schemas['ClientActivity']>;
  /** Counts begin here. */
  since_ms?: number;
  channels_total?: number;
  channels: Record<string, ClientChannel>;
  latencies: [at_ms: number, channel: string, latency_ms: number, outcome: string][];
}

export type CapabilityRow = Schemas['CapabilityStatus'];

/** The profile that an expectation depends on, or the one that comes nearest to it. */
export type NearestProfile = Schemas['NearestProfile'];

export type ExpectationRow = Omit<Schemas['WatchedExpectation'], 'expect' | 'nearest' | 'reasons'> & {
  /** Bounds by property; utility, publishers, id. */
  expect: Record<string, unknown>;
  nearest?: NearestProfile;
  reasons: { property: string; now?: number | string }[];
};

export type ProfileRow = Schemas['WatchedProfile'];

/** Advice to a publisher or an act of the node, and what came of it. */
export type QualityAction = Known<Schemas['QualityAction']>;

export type PropertyRow = Known<Schemas['PropertyStatus']>;

export interface QualityState {
  node: string;
  strategy: string;
  totals: Schemas['QualityTotals'];
  expectations_total: number;
  expectations_matching: number;
  /** By client and ID, with a line break between. */
  expectations: Record<string, ExpectationRow>;
  profiles_total: number;
  profiles_matching: number;
  /** By channel and publisher. */
  profiles: Record<string, ProfileRow>;
  actions: Record<string, QualityAction>;
  properties: Record<string, PropertyRow>;
}

export interface Page<T> {
  total: number;
  matching: number;
  order: string[];
  rows: Record<string, T>;
}

interface PageParameters {
  limit?: number;
  offset?: number;
  search?: string;
  sort?: string;
  descending?: boolean;
}

export type AdmissionState = Omit<Schemas['AdmissionState'], 'pools'> & {
  pools: Record<string, Known<Schemas['PoolStatus']>>;
};

/** The network: nodes by name, links by source and target, flows and arrivals by the node that reports them. */
export interface NetState {
  node: string;
  left_out: number;
  nodes: Record<string, Partial<Schemas['NetNode']>>;
  links: Record<string, Record<string, Partial<Schemas['NetLink']> & Pick<Schemas['NetLink'], 'latency_us'>>>;
  flows: Record<string, Record<string, Schemas['FlowStatus']>>;
  arrivals: Record<string, Record<string, Schemas['ArrivalStatus']>>;
}

/** The sets: what is asked with, and the state that comes. */
export interface LiveSets {
  node: { parameters: Record<never, never>; state: NodeState };
  changes: { parameters: { limit?: number }; state: { rows: Record<string, Change> } };
  net: { parameters: Record<never, never>; state: NetState };
  series: {
    parameters: { prefix?: string; names?: string[]; limit?: number; search?: string };
    state: { total: number; matching: number; rows: Record<string, SeriesRow> };
  };
  channels: { parameters: PageParameters; state: Page<ChannelRow> };
  clients: { parameters: PageParameters; state: Page<ClientRow> };
  channel: { parameters: { channel: string }; state: ChannelState };
  client: { parameters: { client: string }; state: ClientState };
  admission: { parameters: { limit?: number }; state: AdmissionState };
  quality: { parameters: { search?: string; mismatches?: boolean; limit?: number }; state: QualityState };
  outcomes: {
    parameters: { channel?: string; client?: string; limit?: number };
    state: { rows: Record<string, Schemas['DeliveryOutcome']> };
  };
}

export type SetName = keyof LiveSets;

export interface SeriesHistory {
  series: Record<string, { times_ms: number[]; values: number[] }>;
}
