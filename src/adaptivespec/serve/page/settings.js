// What a lane may choose for itself: rule, kappa and policy.

class Settings {
  constructor(refs, boot) {
    Object.assign(this, { refs, boot });
    this.fill(refs.rules, refs.rule, boot.rules, boot.rule);
    this.fill(refs.policies, refs.policy, boot.policies, boot.policy);
    refs.kappa.value = boot.kappa ?? 0.2;
    const [, name, kappa] = /^([^:]+):(?:kappa=)?([\d.]+)$/.exec(boot.rule ?? "") ?? [];
    if (this.entry(boot.rules, name ?? "")?.has_kappa) {
      refs.rule.value = name; // the slider holds the rest
      refs.kappa.value = kappa;
    }
    for (const field of [refs.rule, refs.policy, refs.kappa]) {
      field.addEventListener("input", () => this.refresh());
    }
    this.refresh();
  }

  /** A menu that writes into a field, which takes other spellings too, as static:5,4,16. */
  fill(menu, field, entries, value) {
    const options = (wanted) => entries.filter(wanted).map(({ name, summary }) => (
      el("option", { value: name, title: summary }, name)
    ));
    const groups = [el("option", { value: "", disabled: true, selected: true }, "")];
    if (entries.some((entry) => "lossless" in entry)) {
      groups.push(
        el("optgroup", { label: "Lossless" }, ...options((entry) => entry.lossless)),
        el("optgroup", { label: "Lossy" }, ...options((entry) => !entry.lossless)),
      );
    } else {
      groups.push(...options(() => true));
    }
    menu.replaceChildren(...groups);
    field.value = value ?? "";
    menu.addEventListener("change", () => {
      field.value = menu.value;
      menu.selectedIndex = 0;
      this.refresh();
    });
  }

  entry(entries, spelled) {
    return entries.find((one) => one.name === spelled.split(":")[0].trim());
  }

  /** Kappa is of use where the rule has one that its spelling does not settle. */
  get takesKappa() {
    const spelled = this.refs.rule.value;
    return !spelled.includes(":") && Boolean(this.entry(this.boot.rules, spelled)?.has_kappa);
  }

  refresh() {
    const { refs, boot } = this;
    refs.kappa.disabled = !this.takesKappa;
    setText(refs.kappaText, this.takesKappa ? fixed(Number(refs.kappa.value)) : "\u2013");
    const rule = this.entry(boot.rules, refs.rule.value);
    const policy = this.entry(boot.policies, refs.policy.value);
    const told = [rule, policy].filter(Boolean);
    refs.summary.replaceChildren(
      ...told.flatMap((one) => [el("b", {}, one.name), ` ${one.summary} `]),
    );
  }

  /** Fields of a request. */
  get fields() {
    const { rule, policy, kappa } = this.refs;
    return {
      ...(rule.value.trim() && { rule: rule.value.trim() }),
      ...(policy.value.trim() && { policy: policy.value.trim() }),
      ...(this.takesKappa && { kappa: Number(kappa.value) }),
    };
  }

  copy(other) {
    for (const name of ["rule", "policy", "kappa"]) this.refs[name].value = other.refs[name].value;
    this.refresh();
  }
}
