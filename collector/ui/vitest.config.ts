import { defineConfig } from 'vitest/config';
import examples from '../../api/times.json' with { type: 'json' };

// Local times of the examples are in this zone.
process.env.TZ = examples.zone;

export default defineConfig({ test: { include: ['test/**/*.test.ts'] } });
