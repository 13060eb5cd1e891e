// Arranges the network, apart from the page so that it never waits: it is told nodes, with their
// sizes, and edges, and answers with where they are.
onmessage = ({ data: { nodes, edges } }) => {
  const graph = new dagre.graphlib.Graph();
  // Other rankers cost seconds on 700 nodes, and the order of calls is nearly the ranks anyway.
  graph.setGraph({ nodesep: 24, ranksep: 46, ranker: "longest-path" });
  nodes.forEach(({ width, height }, id) => graph.setNode(String(id), { width, height }));
  edges.forEach(([source, destination]) => graph.setEdge(String(source), String(destination), {}));
  dagre.layout(graph);
  const { width, height } = graph.graph();
  postMessage({
    width,
    height,
    places: nodes.map((_, id) => { const { x, y } = graph.node(String(id)); return [x, y]; }),
    lines: edges.map(([s, d]) => graph.edge(String(s), String(d)).points.map(({ x, y }) => [x, y])),
  });
};
