/** Drawings as data: element and attributes. Nothing is set as markup. */
export type Shape = [tag: string, attributes: Record<string, string>];

export const ICONS = {
  overview: [['path', { d: 'M2 9.5h2.6L6.5 4l3 8 1.9-5 1 2.5H14' }]],
  channels: [
    ['path', { d: 'M2 4.5h12M2 8h12M2 11.5h12' }],
    ['circle', { cx: '5', cy: '4.5', r: '1.4', fill: 'currentColor' }],
    ['circle', { cx: '11', cy: '8', r: '1.4', fill: 'currentColor' }],
    ['circle', { cx: '7', cy: '11.5', r: '1.4', fill: 'currentColor' }],
  ],
  clients: [
    ['rect', { x: '2', y: '3', width: '12', height: '8', rx: '1.5' }],
    ['path', { d: 'M6 14h4' }],
  ],
  policies: [
    ['path', { d: 'M3 3h7M3 8h10M3 13h4' }],
    ['path', { d: 'm11 1.5 2 1.5-2 1.5' }],
  ],
  whatif: [['path', { d: 'M3 13c4 0 3-9 10-9M3 13c5 0 5-4 10-4M3 13h10' }]],
  network: [
    ['circle', { cx: '3.5', cy: '4', r: '1.7' }],
    ['circle', { cx: '12.5', cy: '5.5', r: '1.7' }],
    ['circle', { cx: '7', cy: '12', r: '1.7' }],
    ['path', { d: 'm5.1 4.3 5.7.9M4.3 5.5l2 5M11.6 7 8 10.6' }],
  ],
  quality: [
    ['path', { d: 'M2 5h6M12 5h2M2 11h2M8 11h6' }],
    ['circle', { cx: '10', cy: '5', r: '2' }],
    ['circle', { cx: '6', cy: '11', r: '2' }],
  ],
  admission: [
    ['path', { d: 'M3 14V3h10v11M3 8h10' }],
    ['path', { d: 'M8 3v11', opacity: '.5' }],
  ],
  history: [['path', { d: 'M2.5 8a5.5 5.5 0 1 0 1.7-4M2.5 2.5v3h3M8 5v3.3l2 1.4' }]],
  why: [
    ['circle', { cx: '8', cy: '8', r: '6' }],
    ['path', { d: 'M6.3 6.4c.1-2.2 3.6-2.1 3.5 0 0 1.4-1.8 1.3-1.8 2.7M8 11.3v.2' }],
  ],
  internals: [['path', { d: 'M2 13V9M5 13V5M8 13V7M11 13V3M14 13v-3' }]],
  search: [
    ['circle', { cx: '7', cy: '7', r: '4.3' }],
    ['path', { d: 'm10.3 10.3 3.2 3.2' }],
  ],
  chev: [['path', { d: 'm5 6.5 3 3 3-3' }]],
  right: [['path', { d: 'm6.5 5 3 3-3 3' }]],
  copy: [
    ['rect', { x: '5', y: '5', width: '8', height: '8', rx: '1.5' }],
    ['path', { d: 'M3 10.5V4a1 1 0 0 1 1-1h6.5' }],
  ],
  pause: [['path', { d: 'M6 4v8M10 4v8' }]],
  play: [['path', { d: 'M5.5 3.5 12 8l-6.5 4.5z', fill: 'currentColor' }]],
  sun: [
    ['circle', { cx: '8', cy: '8', r: '3' }],
    [
      'path',
      {
        d: 'M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M12.6 3.4l-1.1 1.1M4.5 11.5l-1.1 1.1',
      },
    ],
  ],
  moon: [['path', { d: 'M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z' }]],
  more: [['path', { d: 'M3.5 8h.1M8 8h.1M12.5 8h.1', 'stroke-width': '2.4' }]],
  plus: [['path', { d: 'M8 3.5v9M3.5 8h9' }]],
  x: [['path', { d: 'm4.5 4.5 7 7M11.5 4.5l-7 7' }]],
  dl: [['path', { d: 'M8 2.5v7.5m-3-3 3 3 3-3M3 13.2h10' }]],
  check: [['path', { d: 'm3.5 8.5 3 3 6-7' }]],
  arrow: [['path', { d: 'M3 8h9.5M9 4.5 12.5 8 9 11.5' }]],
  more5: [['path', { d: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11' }]],
  link: [
    [
      'path',
      {
        d: 'M6.8 9.2a2.6 2.6 0 0 0 3.8.2l2-2a2.6 2.6 0 0 0-3.7-3.7l-1 1M9.2 6.8a2.6 2.6 0 0 0-3.8-.2l-2 2a2.6 2.6 0 0 0 3.7 3.7l1-1',
      },
    ],
  ],
  undo: [['path', { d: 'M5.5 3 2.5 6l3 3M2.8 6H9a4 4 0 0 1 0 8H6' }]],
  pin: [['path', { d: 'M8 14V9.5M5 9.5h6l-1-3.2V2.5H6v3.8z' }]],
  menu: [['path', { d: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11' }]],
  logout: [['path', { d: 'M6.5 2.5h-3v11h3M10 5l3 3-3 3M6.5 8H13' }]],
  keyboard: [
    ['rect', { x: '1.5', y: '4', width: '13', height: '8', rx: '1.5' }],
    ['path', { d: 'M4.5 9.5h7M4 6.7h.1M6.600 6.7h.1M9.300 6.7h.1M11.900 6.7h.1' }],
  ],
  system: [
    ['rect', { x: '2', y: '3', width: '12', height: '8', rx: '1.5' }],
    ['path', { d: 'M6 14h4M8 11v3' }],
  ],
  book: [
    ['path', { d: 'M3 3.5c2-.8 3.5-.8 5 .5 1.5-1.300 3-1.300 5-.5v9c-2-.8-3.5-.8-5 .5-1.5-1.300-3-1.300-5-.5zM8 4v9' }],
  ],
  up: [['path', { d: 'm5 9.5 3-3 3 3' }]],
} satisfies Record<string, Shape[]>;

export type IconName = keyof typeof ICONS;

/** `C` stands for the colour of the fate, `S` for the surface. */
export const GLYPHS = {
  'in-time': [
    ['circle', { cx: '7', cy: '7', r: '6', fill: 'C' }],
    [
      'path',
      {
        d: 'm4.2 7.2 2 2 3.6-4.2',
        stroke: 'S',
        'stroke-width': '1.6',
        fill: 'none',
        'stroke-linecap': 'round',
        'stroke-linejoin': 'round',
      },
    ],
  ],
  late: [
    ['circle', { cx: '7', cy: '7', r: '5.2', fill: 'none', stroke: 'C', 'stroke-width': '1.6' }],
    ['path', { d: 'M7 4v3.2l2.2 1.4', stroke: 'C', 'stroke-width': '1.6', fill: 'none', 'stroke-linecap': 'round' }],
  ],
  shaped: [
    [
      'rect',
      {
        x: '1',
        y: '1',
        width: '12',
        height: '12',
        rx: '2',
        fill: 'none',
        stroke: 'C',
        'stroke-width': '1.3',
        'stroke-dasharray': '2 1.6',
      },
    ],
    ['rect', { x: '1', y: '6.5', width: '6.5', height: '6.5', rx: '1.3', fill: 'C' }],
  ],
  replaced: [
    [
      'rect',
      { x: '1', y: '1', width: '8.5', height: '8.5', rx: '1.6', fill: 'none', stroke: 'C', 'stroke-width': '1.4' },
    ],
    ['rect', { x: '5', y: '5', width: '8', height: '8', rx: '1.6', fill: 'C' }],
  ],
  expired: [
    [
      'path',
      {
        d: 'M3 1h8M3 13h8M4 1c0 4 6 8 6 12M10 1c0 4-6 8-6 12',
        stroke: 'C',
        'stroke-width': '1.5',
        fill: 'none',
        'stroke-linecap': 'round',
      },
    ],
  ],
  shed: [['path', { d: 'M1.2 3h11.6L7 13z', fill: 'C' }]],
  refused: [
    ['circle', { cx: '7', cy: '7', r: '5.4', fill: 'none', stroke: 'C', 'stroke-width': '1.7' }],
    ['path', { d: 'm3.4 3.4 7.2 7.2', stroke: 'C', 'stroke-width': '1.7' }],
  ],
  ok: [
    ['circle', { cx: '7', cy: '7', r: '6', fill: 'C' }],
    [
      'path',
      {
        d: 'm4.2 7.2 2 2 3.6-4.2',
        stroke: 'S',
        'stroke-width': '1.6',
        fill: 'none',
        'stroke-linecap': 'round',
        'stroke-linejoin': 'round',
      },
    ],
  ],
  warn: [
    ['circle', { cx: '7', cy: '7', r: '5.3', fill: 'none', stroke: 'C', 'stroke-width': '1.5' }],
    ['path', { d: 'M7 1.7a5.3 5.3 0 0 1 0 10.6z', fill: 'C' }],
  ],
  bad: [
    ['rect', { x: '2', y: '2', width: '10', height: '10', rx: '1.5', transform: 'rotate(45 7 7)', fill: 'C' }],
    ['path', { d: 'M7 4v3.6M7 9.8v.2', stroke: 'S', 'stroke-width': '1.7', 'stroke-linecap': 'round' }],
  ],
  stale: [
    [
      'circle',
      { cx: '7', cy: '7', r: '5.3', fill: 'none', stroke: 'C', 'stroke-width': '1.5', 'stroke-dasharray': '2.2 2' },
    ],
  ],
} satisfies Record<string, Shape[]>;

export type GlyphName = keyof typeof GLYPHS;
