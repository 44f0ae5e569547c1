// Sentences for the codes and numbers that say why a request is or isn't in a pass: the server's own templates.

/** Puts sentences together as tracer.explain does. `templates` is `why` of /api/config. */
export class Why {
  constructor(templates) {
    this.templates = templates;
  }

  /** The sentence for a code and its numbers. A code without a template is shown as it is. */
  sentence(code, numbers = {}) {
    const whole = code === "no_budget" && "needed" in numbers;
    const template = this.templates[whole ? "no_budget_whole" : code];
    return template?.replace(/\{(\w+)\}/g, (_, name) => numbers[name]) ?? whyCode(code, numbers);
  }
}

/** The code and its numbers: "no_blocks · needed 3 · free 1". */
export function whyCode(code, numbers = {}) {
  return [code, ...Object.entries(numbers).map(([name, value]) => `${name} ${value}`)].join(" · ");
}
