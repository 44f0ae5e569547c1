// The prompt box: one prompt in some copies, or a burst of sample prompts.
import { getSamples, postRequest } from "api";
import { $, setText } from "dom";

/** Binds the form. Errors are shown beneath it, in the server's words. */
export class Prompts {
  constructor() {
    $("prompt-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run(() => this.#send());
    });
    $("prompt-form").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("prompt-form").requestSubmit();
    });
    $("burst").addEventListener("click", () => this.#run(() => this.#burst()));
  }

  async #send() {
    await postRequest({
      prompt: $("prompt").value || $("prompt").placeholder,
      chat: $("chat").checked,
      temperature: numberIn("temperature"),
      max_tokens: numberIn("max-tokens"),
      copies: numberIn("copies"),
    });
  }

  async #burst() {
    this.samples ??= await getSamples();
    const wanted = Array.from({ length: numberIn("burst-size") }, (_, i) => this.samples[i % this.samples.length]);
    const temperature = numberIn("temperature");
    await Promise.all(wanted.map((sample) => postRequest({ ...sample, temperature, copies: 1 })));
  }

  async #run(send) {
    try {
      await send();
      this.#error("");
    } catch (error) {
      this.#error(error.message);
    }
  }

  #error(words) {
    setText($("prompt-error"), words);
    $("prompt-error").hidden = !words;
  }
}

/** The number in a field. Throws an Error that names the field when there is none. */
function numberIn(id) {
  const field = $(id);
  if (field.value === "" || !field.checkValidity()) {
    throw new Error(`${id.replace("-", " ")}: ${field.validationMessage || "give a number"}`);
  }
  return field.valueAsNumber;
}
