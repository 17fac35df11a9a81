// Best paths in integers: each state takes the better of a step and a new beginning, and a position says which state is
// best, and where it was. One result is a state before its position, and one has no axis but that of the recurrence.

!E = tensor<?x?x24xi32, #diagram.array<[b, t, s]>>
!S = tensor<?x24xi32, #diagram.array<[b, s]>>
!A = tensor<24xi32, #diagram.array<[s]>>
!B = tensor<?x?xi32, #diagram.array<[b, t]>>
!b = tensor<?xi32, #diagram.array<[b]>>

func.func @paths(%E: !E, %cost: !A, %S0: !S) -> (!S, !E, !B) attributes {sizes = #diagram.sizes<b = 5, t = 17>} {
  %S, %before, %best = diagram.recurrence over t (%s = %S0 : !S) each (%e = %E : !E, %c = %cost : !A) -> (!S, !E, !B) {
    %top = diagram.reduce max %s over [s] : !S -> !b
    %place = diagram.index -> !A
    %next = diagram.map (%x = %s : !S, %m = %top : !b, %k = %c : !A, %g = %e : !S, %i = %place : !A) -> !S {
      %two = arith.constant 2 : i32
      %jump = arith.subi %m, %two : i32
      %stay = arith.subi %x, %k : i32
      %p = arith.maxsi %stay, %jump : i32
      %r = arith.addi %p, %g : i32
      %three = arith.constant 3 : i32
      %z = arith.remsi %i, %three : i32
      %o = arith.subi %r, %z : i32
      diagram.yield %o : i32
    }
    %most = diagram.reduce max %next over [s] : !S -> !b
    diagram.yield %next, %s, %most : !S, !S, !b
  }
  func.return %S, %before, %best : !S, !E, !B
}
