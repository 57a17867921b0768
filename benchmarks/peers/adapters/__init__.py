"""One module per contender, each run in a process of its own: Python here, Node.js in the `.mjs` files beside it."""
