// One streamed chat completion: the request, its server-sent events, and its failures in words.

/** A failure that is shown as it is: what happened, and what to do about it. */
class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * POST a chat completion and yield the JSON of every event of its stream.
 * Throws Failure, or the AbortError of `signal`.
 */
async function* completion(body, key, signal) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch("v1/chat/completions", {
      method: "POST", headers, body: JSON.stringify(body), signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Failure("The server cannot be reached. See whether it still runs, then send again.");
  }
  if (!response.ok) throw await refusal(response);
  let ended = false;
  for await (const data of events(response.body, signal)) {
    if (data === "[DONE]") {
      ended = true;
      break;
    }
    const chunk = parsed(data);
    if (chunk === undefined) throw new Failure("The server sent an event that is not JSON.");
    if (chunk.error) throw new Failure(sentence(chunk.error.message ?? "The server failed"));
    yield chunk;
  }
  if (!ended) throw new Failure(LOST);
}

const LOST = "The connection was lost before the answer ended; what had come is kept. "
  + "See whether the server still runs, then send again.";

/** The data of each server-sent event, however the bytes are cut into pieces. */
async function* events(body, signal) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw signal.aborted ? error : new Failure(LOST);
      });
      rest += decoder.decode(value, { stream: !done });
      const parts = rest.split(/\r\n\r\n|\n\n|\r\r/);
      rest = parts.pop();
      for (const part of parts) yield* dataOf(part);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function* dataOf(event) {
  const lines = event.split(/\r\n|\n|\r/).filter((line) => line.startsWith("data:"));
  if (lines.length > 0) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}

const REMEDIES = {
  400: "Change it and send again.",
  401: "Write the server's key into the field Key and send again; it is kept in memory only.",
  404: "See whether the page and the server are of the same version.",
  413: "Shorten the prompt.",
  422: "Change it and send again.",
  503: "Wait a moment and send again, or see what the server's log says.",
};

async function refusal(response) {
  const error = parsed(await response.text().catch(() => ""))?.error ?? {};
  const { status } = response;
  let remedy = REMEDIES[status] ?? "See what the server's log says.";
  let what = error.message ?? `The server answered with status ${status}`;
  if (error.param && !what.includes(error.param)) what = `${error.param}: ${what}`;
  if (status === 429) {
    const wait = Number(response.headers.get("Retry-After"));
    remedy = wait > 0 ? `Send again in ${plural(wait, "second")}.` : "Send again in a moment.";
  }
  return new Failure(`${sentence(what)} ${remedy}`, status);
}

function sentence(text) {
  const trimmed = String(text).trim();
  return /[.!?]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}
