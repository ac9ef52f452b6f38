// Asks the server.

const KEY = "lockstep-api-key";
const RETRY_PAUSES = [500, 1000, 2000, 4000]; // milliseconds between attempts to reach a server that is gone
const HEALTH_TIMEOUT = 5000;

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
export const hasKey = () => Boolean(sessionStorage.getItem(KEY));
export const keepKey = (key) => sessionStorage.setItem(KEY, key);

// Returns the answer. Throws a `Refusal` if the server refuses, another error if it is gone.
export async function ask(path, body, signal) {
  const fields = hasKey() ? { ...body, api_key: sessionStorage.getItem(KEY) } : body;
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(fields), signal } : { signal });
  const answer = await response.json();
  if (!response.ok) throw new Refusal(response.status, answer.error || `The server answered with ${response.status}.`);
  return answer;
}

// Returns when the server answers again. Calls `report` after every attempt that failed.
export async function waitForServer(report) {
  for (let count = 0; ; count += 1) {
    await pause(RETRY_PAUSES[Math.min(count, RETRY_PAUSES.length - 1)]);
    try {
      await ask("health", null, AbortSignal.timeout(HEALTH_TIMEOUT));
      return;
    } catch {
      report();
    }
  }
}
