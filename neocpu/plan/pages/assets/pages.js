// Which pages of memory the weights and the arena are in.
function showPages() {
  const [weights, arena] = [plan.weights.packed_bytes, report.arena.bytes];
  const found = profile?.pages ?? {};
  const line = (name, { mapped, resident, huge }) => [
    [`${name}: mapped`, mapped], [`${name}: in memory`, resident], [`${name}: in huge pages`, huge]];
  at("pages").append(
    make("p", { class: "hint" }, `The weights (${size(weights)}) are mapped from the file, in pages of 4 kB that are read when they are first used, and that all processes share. `
      + `For the arena (${size(arena)}) huge pages of 2 MB are asked for, so that addresses take fewer steps to look up; each process has its own. `
      + (Object.keys(found).length ? "After the profile's runs:" : profile ? "This system does not say which are in memory." : "With --profile this page shows which of them are in memory.")));
  const rows = Object.entries(found).flatMap(([name, each]) => line(name, each));
  if (rows.length) at("pages").append(bars(rows, size));
}
