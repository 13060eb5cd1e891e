// Arranges the network, apart from the page so that it never waits: it is told nodes, with their
// sizes, and edges, and answers with where they are.
const ACROSS = 264, DOWN = 96, SHAPE = 1.4;

// The longest way to each node.
function ranksOf(count, edges) {
  const ranks = new Array(count).fill(0), waiting = new Array(count).fill(0);
  const readers = Array.from({ length: count }, () => []);
  for (const [s, d] of edges) { readers[s].push(d); waiting[d] += 1; }
  const ready = ranks.map((_, id) => id).filter((id) => !waiting[id]);
  for (const id of ready) {
    for (const reader of readers[id]) {
      ranks[reader] = Math.max(ranks[reader], ranks[id] + 1);
      waiting[reader] -= 1;
      if (!waiting[reader]) ready.push(reader);
    }
  }
  return ranks;
}

// A long network is folded into columns, which together are about as wide as a screen: a whole one is
// a thread on it, and beyond some hundred nodes too deep for the library's recursion. Columns end where
// few tensors go on into the next one.
function columnsOf(ranks, edges) {
  const depth = ranks.reduce((a, b) => Math.max(a, b), 0);
  const crossing = Array.from({ length: depth + 1 }, () => new Set());
  for (const [s, d] of edges) for (let rank = ranks[s]; rank < ranks[d]; rank += 1) crossing[rank].add(s);
  const sizes = new Array(depth + 1).fill(0);
  for (const rank of ranks) sizes[rank] += 1;
  // Between what ranks have on average and what the widest has.
  const width = (ACROSS * (ranks.length / (depth + 1) + Math.max(...sizes))) / 2 + 60;
  const high = Math.max(8, Math.sqrt(((depth + 1) * width) / (SHAPE * DOWN)));
  const rows = Math.ceil((depth + 1) / Math.ceil((depth + 1) / high));
  const columns = [];
  for (let first = 0, above = []; first <= depth;) {
    const ends = Array.from({ length: rows }, (_, i) => first + Math.ceil(rows * 0.6) + i);
    const cost = (rank) => 4 * crossing[rank].size + Math.abs(rank - first + 1 - rows);
    const last = depth - first < rows * 1.25 ? depth : ends.filter((rank) => rank < depth).reduce((a, b) => (cost(b) < cost(a) ? b : a));
    const below = [...crossing[last]];
    columns.push({ first, last, above, below });
    [first, above] = [last + 1, below];
  }
  return columns;
}

// Arranges a column; what comes into it or leaves it does so at points of its own, above and below.
function arrange({ first, last, above, below }, nodes, ranks, edges) {
  const graph = new dagre.graphlib.Graph();
  const began = (s) => (ranks[s] < first ? `above ${s}` : String(s));
  // Other rankers cost seconds on 700 nodes, and the order of calls is nearly the ranks anyway.
  graph.setGraph({ nodesep: 24, ranksep: 46, ranker: "longest-path" });
  nodes.forEach((node, id) => { if (ranks[id] >= first && ranks[id] <= last) graph.setNode(String(id), { ...node }); });
  for (const s of above) graph.setNode(`above ${s}`, { width: 1, height: 1 });
  for (const s of below) graph.setNode(`below ${s}`, { width: 1, height: 1 });
  const connect = (s, end, rank) => graph.setEdge(began(s), end, { minlen: ranks[s] < first ? rank - first + 1 : 1 });
  for (const [s, d] of edges) connect(s, String(d), ranks[d]);
  for (const s of below) connect(s, `below ${s}`, last + 1);
  dagre.layout(graph);
  return { place: (name) => graph.node(name), way: (s, end) => graph.edge(began(s), end).points, size: graph.graph() };
}

// The way from the foot of a column to the head of the next one, between the two.
function led([x, y], [toX, toY], foot, lane, number) {
  const [low, high] = [foot + 12 + 6 * number, toY - 14 - 6 * number];
  return [[x, y], [x, low], [lane + 8 * number, low], [lane + 8 * number, high], [toX, high], [toX, toY]];
}

onmessage = ({ data: { nodes, edges } }) => {
  const ranks = ranksOf(nodes.length, edges);
  const places = [], lines = [], ways = new Map();
  let [right, bottom, foot] = [0, 0, 0];
  for (const column of columnsOf(ranks, edges)) {
    const inside = edges.map((edge, i) => [...edge, i]).filter(([, d]) => ranks[d] >= column.first && ranks[d] <= column.last);
    const { place, way, size } = arrange(column, nodes, ranks, inside);
    const left = right + (column.above.length ? 60 + 8 * column.above.length : 0);
    const moved = ({ x, y }) => [x + left, y];
    column.above.forEach((s, i) => ways.set(s, [...ways.get(s), ...led(ways.get(s).at(-1), moved(place(`above ${s}`)), foot, right + 20, i)]));
    const before = (s) => (ranks[s] < column.first ? ways.get(s) : []);
    nodes.forEach((_, id) => { if (place(String(id))) places[id] = moved(place(String(id))); });
    for (const [s, d, i] of inside) lines[i] = [...before(s), ...way(s, String(d)).map(moved)];
    for (const s of column.below) ways.set(s, [...before(s), ...way(s, `below ${s}`).map(moved)]);
    [right, bottom, foot] = [left + size.width, Math.max(bottom, size.height), size.height];
  }
  postMessage({ width: right, height: bottom, places, lines });
};
