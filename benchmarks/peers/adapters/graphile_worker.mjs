// graphile-worker through addJob, addJobs and run(), with the batching that its documentation recommends.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { Countdown, Lateness, Watch, body } from "./measuring.mjs";

// Its default writes two lines per job.
const quiet = new Logger(() => () => {});

export class Adapter {
  async open({ dsn, create = true }) {
    this.connectionString = dsn;
    this.utils = await makeWorkerUtils({ connectionString: dsn });
    if (create) await this.utils.migrate();
  }
  async produce({ seconds = 1e9, batch = 1, most, delay_s = 0 }) {
    const watch = new Watch(seconds, most);
    const runAt = delay_s ? new Date(Date.now() + delay_s * 1e3) : undefined;
    while (watch.goesOn) {
      if (batch === 1) await this.utils.addJob("bench", body(watch.n), { runAt });
      else
        await this.utils.addJobs(
          Array.from({ length: batch }, (_, i) => ({ identifier: "bench", payload: body(watch.n + i), runAt })),
        );
      watch.step(batch);
    }
    return watch.result();
  }
  async work({ n, concurrency }) {
    const countdown = new Countdown(n);
    const runner = await this.#run(concurrency, () => countdown.count());
    await countdown.done;
    await runner.stop();
    return countdown.result();
  }
  async late({ n, every_s }) {
    const lateness = new Lateness(n);
    const runner = await this.#run(1, (payload) => lateness.handled(payload.order));
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await lateness.send((i) => this.utils.addJob("bench", body(i)), n, every_s);
    await lateness.done;
    await runner.stop();
    return lateness.result();
  }
  #run(concurrency, handle) {
    const batching = concurrency === 1 ? {} : { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    return run({
      preset: {
        worker: { logger: quiet, connectionString: this.connectionString, concurrentJobs: concurrency, maxPoolSize: 10, ...batching },
      },
      noHandleSignals: true,
      taskList: { bench: async (payload) => handle(payload) },
    });
  }
  async close() {
    await this.utils.release();
  }
}
