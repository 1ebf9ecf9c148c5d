import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'vite';

/** Writes `licences.txt`: the licence of each package of which code is in the built files. */
export function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== 'chunk') continue;
        for (const id of Object.keys(chunk.modules)) {
          const found = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id.replace(/^\0/, ''));
          if (found) folders.add(found[0]);
        }
      }
      folders.add(join(process.cwd(), 'node_modules/uplot')); // its style sheet
      const texts = [...folders].map(notice).sort();
      this.emitFile({
        type: 'asset',
        fileName: 'licences.txt',
        source: `The console contains code of these packages.\n\n${texts.join('\n\n')}\n`,
      });
    },
  };
}

function notice(folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Record<string, unknown>;
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  const path = file ? join(folder, file) : '';
  const text = path && existsSync(path) ? readFileSync(path, 'utf8').trim() : `Licence: ${String(about['license'])}`;
  return `== ${String(about['name'])} ${String(about['version'])} (${String(about['license'])})\n\n${text}`;
}
