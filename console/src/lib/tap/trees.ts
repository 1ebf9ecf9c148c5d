/** JSON and XML as trees to fold. Bounded in nodes and depth; nothing of it is ever set as markup. */
export interface TreeNode {
  /** Where it is, for remembering what is unfolded. */
  path: string;
  /** A member's name, or an element's. */
  name: string;
  /** Attributes of an element. */
  attributes: [name: string, value: string][];
  kind: 'object' | 'array' | 'element' | 'string' | 'number' | 'word' | 'text';
  /** Text of a leaf. */
  text: string;
  children: TreeNode[];
  /** How many children there are beyond those here. */
  more: number;
}

const MAX_NODES = 4_000;
const MAX_DEPTH = 40;
const MAX_CHILDREN = 500;
const MAX_TEXT = 2_000;

const leaf = (path: string, name: string, kind: TreeNode['kind'], text: string): TreeNode => ({
  path,
  name,
  attributes: [],
  kind,
  text: text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text,
  children: [],
  more: 0,
});

/** Undefined if it is no JSON. */
export function jsonTree(text: string): TreeNode | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  let budget = MAX_NODES;
  const build = (each: unknown, name: string, path: string, depth: number): TreeNode => {
    budget -= 1;
    if (typeof each === 'string') return leaf(path, name, 'string', each);
    if (typeof each === 'number') return leaf(path, name, 'number', String(each));
    if (typeof each !== 'object' || each === null) return leaf(path, name, 'word', String(each));
    const isArray = Array.isArray(each);
    const entries = isArray ? each.map((item, i) => [String(i), item] as const) : Object.entries(each);
    const node = leaf(path, name, isArray ? 'array' : 'object', '');
    for (const [key, item] of entries) {
      if (budget <= 0 || depth >= MAX_DEPTH || node.children.length >= MAX_CHILDREN) break;
      node.children.push(build(item, isArray ? '' : key, `${path}/${key}`, depth + 1));
    }
    node.more = entries.length - node.children.length;
    return node;
  };
  return build(value, '', '', 0);
}

/** Undefined if it is no well-formed XML. `parse` is the browser's, another one in tests. */
export function xmlTree(
  text: string,
  parse: (text: string) => Document = (each) => new DOMParser().parseFromString(each, 'application/xml'),
): TreeNode | undefined {
  if (/<!DOCTYPE/i.test(text)) return undefined; // entities may expand without end
  const document = parse(text);
  const root = document.documentElement as Element | null;
  if (!root || document.getElementsByTagName('parsererror').length) return undefined;
  let budget = MAX_NODES;
  const build = (element: Element, path: string, depth: number): TreeNode => {
    budget -= 1;
    const node = leaf(path, element.tagName, 'element', '');
    node.attributes = [...element.attributes].slice(0, 50).map((each) => [each.name, each.value.slice(0, MAX_TEXT)]);
    let total = 0;
    for (const child of element.childNodes) {
      const isElement = child.nodeType === 1;
      const words = isElement ? '' : (child.nodeValue ?? '').trim();
      if (!isElement && (!words || (child.nodeType !== 3 && child.nodeType !== 4))) continue;
      total += 1;
      if (budget <= 0 || depth >= MAX_DEPTH || node.children.length >= MAX_CHILDREN) continue;
      if (isElement) node.children.push(build(child as Element, `${path}/${total}`, depth + 1));
      else {
        budget -= 1;
        node.children.push(leaf(`${path}/${total}`, '', 'text', words));
      }
    }
    node.more = total - node.children.length;
    return node;
  };
  return build(root, '', 0);
}

/** What is unfolded at first: the root, and below it what is short. */
export function opensFirst(node: TreeNode, depth: number): boolean {
  if (depth === 0) return true;
  const count = node.children.length + node.more;
  if (depth === 1 && node.kind === 'element') return count <= 1 || count <= 4;
  return count <= 1 && depth < 3;
}

/** What a folded node says. */
export function foldedText(node: TreeNode): string {
  const count = node.children.length + node.more;
  if (node.kind === 'object') {
    const names = node.children.slice(0, 3).map((each) => each.name);
    return names.join(', ').length <= 28 && count <= 3 ? names.join(', ') : `${count} members`;
  }
  if (node.kind === 'array') {
    const isObjects = node.children.every((each) => each.kind === 'object');
    return `${count} ${isObjects ? (count === 1 ? 'object' : 'objects') : count === 1 ? 'value' : 'values'}`;
  }
  return `${count} ${count === 1 ? 'element' : 'elements'}`;
}
