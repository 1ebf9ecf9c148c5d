/** What may be done to a client, as the dialog asks for it. */
export interface ClientAction {
  kind: 'disconnect' | 'forget' | 'limit';
  client: string;
  limitKbps?: number | undefined;
  subscriptions?: number | undefined;
  queuedMessages?: number | undefined;
  queuedBytes?: number | undefined;
}
