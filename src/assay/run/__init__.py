"""Running references and candidates in processes of their own."""
