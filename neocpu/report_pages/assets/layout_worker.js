// Arranges the network, apart from the page so that it never waits: it is told nodes, with their
// sizes, and edges, and answers with where they are.
const PIECE = 120;

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

// Where all goes through one node the network is cut: a whole one of 1000 nodes is too deep for the
// library's recursion, and its time grows faster than what it arranges. Each piece but the first
// begins with the node that the one before ends with.
function piecesOf(count, edges) {
  const ranks = ranksOf(count, edges), depth = ranks.reduce((a, b) => Math.max(a, b), 0);
  const sizes = new Array(depth + 1).fill(0), crossing = Array.from({ length: depth + 1 }, () => new Set());
  for (const rank of ranks) sizes[rank] += 1;
  for (const [s, d] of edges) for (let rank = ranks[s]; rank < ranks[d]; rank += 1) crossing[rank].add(s);
  const pieces = [];
  let first = 0, size = 0, gate = null;
  for (let rank = 0; rank <= depth; rank += 1) {
    size += sizes[rank];
    const [only] = crossing[rank];
    const cut = rank < depth && size >= PIECE && crossing[rank].size === 1 && ranks[only] === rank;
    if (!cut && rank < depth) continue;
    pieces.push({ first, last: rank, gate, ids: [] });
    [first, size, gate] = [rank + 1, 0, only];
  }
  const pieceOf = (rank) => pieces.find((piece) => rank <= piece.last);
  ranks.forEach((rank, id) => pieceOf(rank).ids.push(id));
  for (const piece of pieces) if (piece.gate !== null) piece.ids.push(piece.gate);
  return { pieces, pieceOfEdge: ([, d]) => pieceOf(ranks[d]) };
}

function arrange(nodes, ids, edges) {
  const graph = new dagre.graphlib.Graph();
  // Other rankers cost seconds on 700 nodes, and the order of calls is nearly the ranks anyway.
  graph.setGraph({ nodesep: 24, ranksep: 46, ranker: "longest-path" });
  for (const id of ids) graph.setNode(String(id), { ...nodes[id] });
  for (const [s, d] of edges) graph.setEdge(String(s), String(d), {});
  dagre.layout(graph);
  return graph;
}

onmessage = ({ data: { nodes, edges } }) => {
  const { pieces, pieceOfEdge } = piecesOf(nodes.length, edges);
  const places = [], lines = [];
  let [left, right, bottom] = [0, 0, 0];
  for (const piece of pieces) {
    const inside = edges.map((edge, i) => [edge, i]).filter(([edge]) => pieceOfEdge(edge) === piece);
    const graph = arrange(nodes, piece.ids, inside.map(([edge]) => edge));
    const from = piece.gate === null ? null : graph.node(String(piece.gate));
    const [dx, dy] = from ? [places[piece.gate][0] - from.x, places[piece.gate][1] - from.y] : [0, 0];
    const moved = ({ x, y }) => [x + dx, y + dy];
    for (const id of piece.ids) places[id] = moved(graph.node(String(id)));
    for (const [[s, d], i] of inside) lines[i] = graph.edge(String(s), String(d)).points.map(moved);
    const { width, height } = graph.graph();
    [left, right, bottom] = [Math.min(left, dx), Math.max(right, dx + width), Math.max(bottom, dy + height)];
  }
  postMessage({ left, width: right - left, height: bottom, places, lines });
};
