// A product of operands that are both computed, and nowhere zero: beyond the end of an axis nothing must count.

!A = tensor<?x?xf16, #diagram.array<[m, k]>>
!B = tensor<?x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @computed_operands(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<m = 40, n = 24, k = 77>} {
  %a = diagram.map (%x = %A : !A) -> !A {
    %one = arith.constant 1.0 : f16
    %y = arith.addf %x, %one : f16
    diagram.yield %y : f16
  }
  %b = diagram.map (%x = %B : !B) -> !B {
    %two = arith.constant 2.0 : f16
    %y = arith.addf %x, %two : f16
    diagram.yield %y : f16
  }
  %C = diagram.contract %a, %b over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
