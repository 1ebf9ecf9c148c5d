/** A column of a `Table`. */
export interface Column {
  id: string;
  head: string;
  /** Explains the head on hover. */
  title?: string;
  /** Figures stand right. */
  num?: boolean;
  /** In pixels; columns without one share what is left. */
  width?: number;
  /** Its head sorts; the id is the field's name. */
  sortable?: boolean;
  /** Sorting begins with the largest. */
  largestFirst?: boolean;
  /** Where it is left out: on phones, or below 1100 px as well; and where there is no room for all, `narrow` ones first. */
  hide?: 'phone' | 'narrow';
}
