"""What the studio computes, and where: answers that are kept, work that ends with its page, runs in
threads, and studies in processes of their own. Nothing here draws."""
