// A product whose terms are sums and which keeps their maximum: the longest ways of two steps.

!A = tensor<?x?xf32, #diagram.array<[m, k]>>
!B = tensor<?x?xf32, #diagram.array<[k, n]>>
!T = tensor<?x?x?xf32, #diagram.array<[m, k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

func.func @max_plus(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<m = 300, k = 200, n = 300>} {
  %T = diagram.map (%a = %A : !A, %b = %B : !B) -> !T {
    %t = arith.addf %a, %b : f32
    diagram.yield %t : f32
  }
  %C = diagram.reduce max %T over [k] : !T -> !C
  func.return %C : !C
}
