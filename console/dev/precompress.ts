import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const MIN_BYTES = 1024;

/** Writes `X.gz` beside each large built file `X`. The bytes depend on the content alone. */
export function precompress(): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    enforce: 'post',
    writeBundle(options) {
      const directory = options.dir!;
      for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
        if (!/\.(js|css|svg|html|txt)$/.test(name)) continue;
        const content = readFileSync(join(directory, name));
        if (content.length < MIN_BYTES) continue;
        const packed = gzipSync(content, { level: constants.Z_BEST_COMPRESSION });
        packed[9] = 255; // not which system packed it
        writeFileSync(join(directory, `${name}.gz`), packed);
      }
    },
  };
}
