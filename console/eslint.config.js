import js from '@eslint/js';
import svelte from 'eslint-plugin-svelte';
import globals from 'globals';
import ts from 'typescript-eslint';

export default ts.config(
  { ignores: ['src/api/schema.d.ts', 'node_modules/'] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  {
    languageOptions: { globals: { ...globals.browser, ...globals.node } },
    rules: {
      'no-undef': 'off', // TypeScript does it
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      '@typescript-eslint/no-non-null-assertion': 'off',
      'svelte/no-at-html-tags': 'error', // text of others is shown as text only
      // The page's policy forbids them; `style:` directives go another way.
      'no-restricted-syntax': [
        'error',
        {
          selector: "SvelteElement > SvelteStartTag > SvelteAttribute[key.name='style']",
          message: 'Use a class or a style: directive.',
        },
      ],
      '@typescript-eslint/no-dynamic-delete': 'off',
      'svelte/no-navigation-without-resolve': 'off', // that is SvelteKit's
      'svelte/prefer-svelte-reactivity': 'off',
    },
  },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, extraFileExtensions: ['.svelte'] } },
  },
);
