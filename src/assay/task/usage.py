"""Which module-level names of a file each of its functions, classes and assignments reads."""

from __future__ import annotations

import ast
import symtable

# a reference that looks its globals up by name may read any of them
DYNAMIC = frozenset({"globals", "eval", "exec", "vars", "__import__"})


class Usage:
    """Which module-level names each module-level name reads."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.reads: dict[str, set[str]] = {}
        self.rebound: set[str] = set()
        bound_once: set[str] = set()
        for statement in tree.body:
            names = {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
                self._add(statement.name, _names([*defaults, *statement.decorator_list]))
            elif isinstance(statement, ast.ClassDef):
                words = [word.value for word in statement.keywords]
                self._add(statement.name, _names([*statement.bases, *statement.decorator_list, *words]))
            else:
                stored = {
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
                }
                for name in stored:
                    self._add(name, names - {name})
                self.rebound |= stored & bound_once
                if isinstance(statement, ast.AugAssign | ast.For | ast.While | ast.If | ast.With | ast.Try):
                    self.rebound |= stored
                bound_once |= stored
        for table in symtable.symtable(source, "<task>", "exec").get_children():
            self._add(table.get_name(), self._globals_of(table))

    def _add(self, name: str, reads: set[str]) -> None:
        self.reads.setdefault(name, set()).update(reads)

    def _globals_of(self, table: symtable.SymbolTable) -> set[str]:
        """Globals read in a scope and those inside it."""
        found: set[str] = set()
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                self.rebound.add(symbol.get_name())
            # `N = N` in a class body reads the global although the name is local there
            in_class_body = table.get_type() == "class" and symbol.is_local()
            if symbol.is_referenced() and (symbol.is_global() or in_class_body):
                found.add(symbol.get_name())
        for child in table.get_children():
            found |= self._globals_of(child)
        return found

    def closure(self, roots: tuple[str, ...]) -> set[str]:
        """Names that the roots read, directly or through other module-level names."""
        reached: set[str] = set()
        pending = list(roots)
        while pending:
            for name in self.reads.get(pending.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    pending.append(name)
        return reached


def _names(nodes: list[ast.expr]) -> set[str]:
    return {child.id for node in nodes for child in ast.walk(node) if isinstance(child, ast.Name)}
