"""Work behind the studio's pages: cached plans and curves, tasks that end with their page,
simulations in threads, reproductions of papers in processes. Nothing here draws."""
